import java.util.concurrent.TimeUnit;

/**
 * The design that Holdfast was asked to replace: whoever waits looks again every millisecond, the token is the clock in
 * nanoseconds. No line, no lease that anybody keeps, no news of a client's death.
 *
 * <p>Who waits either sleeps inside the monitor, as described, so that each further request stands behind the sleeper; or
 * outside it, so that whoever has just released asks again and wins while the others sleep (it barges).
 */
final class PollingLock implements TokenLock {
  private static final long LEASE_NANOS = TimeUnit.HOURS.toNanos(1);

  private final Object monitor = new Object();
  private final boolean barges;
  private volatile long token;

  PollingLock(boolean barges) {
    this.barges = barges;
  }

  @Override
  public long lock() throws InterruptedException {
    if (!barges) {
      synchronized (monitor) {
        while (!isFree()) Thread.sleep(1);
        return take();
      }
    }
    for (; ; Thread.sleep(1)) {
      synchronized (monitor) {
        if (isFree()) return take();
      }
    }
  }

  @Override
  public boolean unlock(long given) {
    if (given != token) return false;
    token = 0;
    return true;
  }

  private boolean isFree() {
    long held = token;
    return held == 0 || System.nanoTime() - held > LEASE_NANOS;
  }

  private long take() {
    long now = System.nanoTime();
    token = now;
    return now;
  }
}
