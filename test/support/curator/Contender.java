import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.io.Writer;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * "Contender CONNECT SESSION_MS REGISTER_PORT" obeys a line at a time and tells on its output what happened:
 *
 *   open NAME RECIPE PATH    a client of its own, with a thread of its own; RECIPE is mutex, read, write, multi (PATH,PATH),
 *                            latch, selector or semaphoreMutex
 *   acquire NAME             told "NAME held"
 *   try NAME MS              told "NAME held" or "NAME busy"
 *   release NAME             told "NAME released"
 *   cycles NAME TIMES HOLD_MS  acquire, be inside as the register sees it, release; told "NAME done"
 *   revocable NAME           asked to go it tells "NAME asked", and goes
 *   revoke NAME NODE         asks the holder with that node to go; told "NAME revoked"
 */
public final class Contender {
  private static final PrintStream OUT = new PrintStream(System.out, true);
  private static final Map<String, Contender> ALL = new ConcurrentHashMap<>();

  private final String name;
  private final CuratorFramework client;
  private final InterProcessLock lock;
  /** Curator's locks belong to threads. */
  private final ExecutorService thread =
      Executors.newSingleThreadExecutor(
          task -> {
            Thread made = new Thread(task);
            made.setDaemon(true);
            return made;
          });
  private Writer toRegister;
  private BufferedReader fromRegister;

  private Contender(String name, CuratorFramework client, String recipe, String path) {
    this.name = name;
    this.client = client;
    // what stands in the node tells whose it is
    byte[] data = name.getBytes(StandardCharsets.UTF_8);
    InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path, data);
    this.lock =
        switch (recipe) {
          case "read" -> both.readLock();
          case "write" -> both.writeLock();
          case "multi" -> new InterProcessMultiLock(client, List.of(path.split(",")));
          case "latch" -> new Latch(client, path);
          case "selector" -> new Selector(client, path);
          case "semaphoreMutex" -> new InterProcessSemaphoreMutex(client, path);
          default -> new Named(client, path, data);
        };
  }

  private static final class Named extends InterProcessMutex {
    private final byte[] data;

    Named(CuratorFramework client, String path, byte[] data) {
      super(client, path);
      this.data = data;
    }

    @Override
    protected byte[] getLockNodeBytes() {
      return data;
    }
  }

  /** Leadership as a lock: it is acquired by being elected, once. */
  private abstract static class Leadership implements InterProcessLock {
    @Override
    public boolean acquire(long time, TimeUnit unit) {
      throw new UnsupportedOperationException();
    }

    @Override
    public boolean isAcquiredInThisProcess() {
      throw new UnsupportedOperationException();
    }
  }

  private static final class Latch extends Leadership {
    private final LeaderLatch latch;

    Latch(CuratorFramework client, String path) {
      latch = new LeaderLatch(client, path);
    }

    @Override
    public void acquire() throws Exception {
      latch.start();
      latch.await();
    }

    @Override
    public void release() throws Exception {
      latch.close();
    }
  }

  private static final class Selector extends Leadership {
    private final CountDownLatch elected = new CountDownLatch(1);
    private final CountDownLatch resigned = new CountDownLatch(1);
    private final CountDownLatch left = new CountDownLatch(1);
    private final LeaderSelector selector;

    Selector(CuratorFramework client, String path) {
      selector =
          new LeaderSelector(
              client,
              path,
              new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework same) throws Exception {
                  elected.countDown();
                  resigned.await();
                  left.countDown();
                }
              });
    }

    @Override
    public void acquire() throws Exception {
      selector.start();
      elected.await();
    }

    @Override
    public void release() throws Exception {
      resigned.countDown();
      left.await();
      // its node goes when the listener has returned
      while (selector.hasLeadership()) Thread.sleep(1);
    }
  }

  public static void main(String[] args) throws Exception {
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    OUT.println("ready");
    for (String order = orders.readLine(); order != null; order = orders.readLine()) {
      String[] words = order.split(" ");
      String name = words[1];
      if (words[0].equals("open")) {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(
                args[0], Integer.parseInt(args[1]), 5_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        Contender made = new Contender(name, client, words[2], words[3]);
        ALL.put(name, made);
        OUT.println(name + " open");
      } else {
        Contender one = ALL.get(name);
        one.thread.execute(() -> one.obey(words, Integer.parseInt(args[2])));
      }
    }
    // ends with the test
    System.exit(0);
  }

  private void obey(String[] words, int registerPort) {
    try {
      switch (words[0]) {
        case "acquire" -> {
          lock.acquire();
          tell("held");
        }
        case "try" -> tell(lock.acquire(Long.parseLong(words[2]), TimeUnit.MILLISECONDS) ? "held" : "busy");
        case "release" -> {
          lock.release();
          tell("released");
        }
        case "cycles" -> cycles(registerPort, Integer.parseInt(words[2]), Integer.parseInt(words[3]));
        case "revocable" -> ((InterProcessMutex) lock).makeRevocable(asked -> thread.execute(this::go));
        case "revoke" -> {
          Revoker.attemptRevoke(client, words[2]);
          tell("revoked");
        }
        default -> tell("does not know " + words[0]);
      }
    } catch (Exception error) {
      tell("failed " + error);
    }
  }

  private void go() {
    tell("asked");
    obey(new String[] {"release", name}, 0);
  }

  private void cycles(int registerPort, int times, long holdMs) throws Exception {
    try (Socket socket = new Socket("127.0.0.1", registerPort)) {
      socket.setTcpNoDelay(true);
      toRegister = new OutputStreamWriter(socket.getOutputStream());
      fromRegister = new BufferedReader(new InputStreamReader(socket.getInputStream()));
      for (int cycle = 0; cycle < times; cycle++) {
        lock.acquire();
        say("enter");
        Thread.sleep(holdMs);
        say("leave");
        lock.release();
      }
    }
    tell("done");
  }

  private void say(String what) throws Exception {
    toRegister.write(what + " " + name + "\n");
    toRegister.flush();
    if (fromRegister.readLine() == null) throw new IllegalStateException("the register has gone");
  }

  private void tell(String what) {
    OUT.println(name + " " + what);
  }
}
