import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * "CuratorBench CONNECT" obeys lines "THREADS KEYS PREFIX": the threads acquire and release, each on the keys in turn, with
 * one mutex object a key. "mark" counts from then on; "look" tells "MS P50 P99 MOST GRANTS,GRANTS,..." of what came since,
 * times in microseconds of a whole pair with one thread, else of the wait; "finish" ends it.
 */
public final class CuratorBench {
  private static final int ROOM = 1 << 16;

  private final CuratorFramework client;
  private final AtomicReference<Exception> failure = new AtomicReference<>();
  private InterProcessMutex[] mutexes;
  private Caller[] callers;
  private volatile boolean isOver;
  private long markedAt;

  private CuratorBench(CuratorFramework client) {
    this.client = client;
  }

  public static void main(String[] args) throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(args[0], 30_000, 15_000, new ExponentialBackoffRetry(1_000, 3));
    client.start();
    client.blockUntilConnected();
    CuratorBench bench = new CuratorBench(client);
    System.out.println("ready");
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String order = orders.readLine(); order != null; order = orders.readLine()) {
      System.out.println(bench.obey(order.split(" ")));
    }
    System.exit(0);
  }

  private String obey(String[] words) throws Exception {
    switch (words[0]) {
      case "mark":
        for (Caller one : callers) one.mark();
        markedAt = System.nanoTime();
        return "marked";
      case "look":
        return look();
      case "finish":
        isOver = true;
        for (Caller one : callers) one.join();
        if (failure.get() != null) throw failure.get();
        return "finished";
      default:
        begin(Integer.parseInt(words[0]), Integer.parseInt(words[1]), words[2]);
        return "begun";
    }
  }

  private void begin(int threads, int keys, String prefix) {
    isOver = false;
    mutexes = new InterProcessMutex[keys];
    for (int key = 0; key < keys; key++) mutexes[key] = new InterProcessMutex(client, "/curator/" + prefix + key);
    callers = new Caller[threads];
    for (int n = 0; n < threads; n++) callers[n] = new Caller(n, threads == 1);
    for (Caller one : callers) one.start();
  }

  private String look() {
    double ms = (System.nanoTime() - markedAt) / 1e6;
    int[] grants = new int[callers.length];
    long[][] took = new long[callers.length][];
    long most = 0;
    for (int n = 0; n < callers.length; n++) {
      Caller one = callers[n];
      synchronized (one) {
        grants[n] = one.grants;
        took[n] = Arrays.copyOf(one.took, Math.min(one.grants, ROOM));
        if (one.waitsSince != 0) most = Math.max(most, System.nanoTime() - one.waitsSince);
      }
    }
    long[] all = Arrays.stream(took).flatMapToLong(Arrays::stream).sorted().toArray();
    if (all.length > 0) most = Math.max(most, all[all.length - 1]);
    String list = Arrays.stream(grants).mapToObj(String::valueOf).collect(Collectors.joining(","));
    return ms + " " + micros(all, 0.5) + " " + micros(all, 0.99) + " " + most / 1e3 + " " + list;
  }

  private static double micros(long[] sorted, double part) {
    return sorted.length == 0 ? Double.NaN : sorted[(int) ((sorted.length - 1) * part)] / 1e3;
  }

  private final class Caller extends Thread {
    private final int number;
    private final boolean timesPairs;
    private final long[] took = new long[ROOM];
    private int grants;
    private long waitsSince;

    Caller(int number, boolean timesPairs) {
      this.number = number;
      this.timesPairs = timesPairs;
      setDaemon(true);
    }

    synchronized void mark() {
      grants = 0;
    }

    @Override
    public void run() {
      try {
        for (int turn = number; !isOver; turn += callers.length) pair(mutexes[turn % mutexes.length]);
      } catch (Exception error) {
        failure.compareAndSet(null, error);
      }
    }

    private void pair(InterProcessMutex mutex) throws Exception {
      long before = System.nanoTime();
      synchronized (this) {
        waitsSince = before;
      }
      mutex.acquire();
      long granted = System.nanoTime();
      if (timesPairs) mutex.release();
      synchronized (this) {
        waitsSince = 0;
        took[grants++ % ROOM] = (timesPairs ? System.nanoTime() : granted) - before;
      }
      if (!timesPairs) mutex.release();
    }
  }
}
