import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.rmi.Remote;
import java.rmi.server.UnicastRemoteObject;

/** "server STUB barging|polling" writes its stub to that file; "client STUB" obeys "THREADS TIMES" lines on its input. */
public final class Main {
  private static final int BACKLOG = 50;

  public static void main(String[] args) throws Exception {
    if (args[0].equals("server")) serve(Path.of(args[1]), args[2].equals("barging"));
    else obey(Path.of(args[1]));
  }

  private static void serve(Path stub, boolean barges) throws Exception {
    PollingLock lock = new PollingLock(barges);
    Remote remote =
        UnicastRemoteObject.exportObject(
            lock, 0, null, port -> new ServerSocket(port, BACKLOG, InetAddress.getLoopbackAddress()));
    try (ObjectOutputStream out = new ObjectOutputStream(Files.newOutputStream(stub))) {
      out.writeObject(remote);
    }
    System.out.println("ready");
    System.in.read(); // ends with the bench
    System.exit(0);
  }

  private static void obey(Path stub) throws Exception {
    TokenLock lock;
    try (ObjectInputStream in = new ObjectInputStream(Files.newInputStream(stub))) {
      lock = (TokenLock) in.readObject();
    }
    System.out.println("ready");
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String order = orders.readLine(); order != null; order = orders.readLine()) {
      String[] words = order.split(" ");
      System.out.println(run(lock, Integer.parseInt(words[0]), Integer.parseInt(words[1])));
    }
  }

  /** Milliseconds that so many threads took, each locking and unlocking so many times. */
  private static double run(TokenLock lock, int threads, int times) throws Exception {
    Thread[] all = new Thread[threads];
    for (int i = 0; i < threads; i++) all[i] = new Thread(() -> turns(lock, times));
    long began = System.nanoTime();
    for (Thread one : all) one.start();
    for (Thread one : all) one.join();
    return (System.nanoTime() - began) / 1e6;
  }

  private static void turns(TokenLock lock, int times) {
    try {
      for (int i = 0; i < times; i++) {
        long token = lock.lock();
        if (!lock.unlock(token)) throw new IllegalStateException("not ours");
      }
    } catch (Exception error) {
      error.printStackTrace();
      System.exit(1);
    }
  }
}
