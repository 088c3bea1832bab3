import java.rmi.Remote;
import java.rmi.RemoteException;

/** A lock over remote calls: lock() gives a token, unlock(token) may come from any thread or request. */
public interface TokenLock extends Remote {
  long lock() throws RemoteException, InterruptedException;

  boolean unlock(long token) throws RemoteException;
}
