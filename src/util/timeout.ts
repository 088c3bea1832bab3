/** Bounds for calls that may throw at once, or never settle. */

import type { Clock } from "./clock.ts";

/** A clock, or what shares the timer of one. */
export type TimerClock = Pick<Clock, "now" | "timer">;

/** Settles like `work`, or with `onTimeout()` if it takes longer than timeoutMs. */
export function withTimeout<T>(
  clock: TimerClock,
  timeoutMs: number,
  work: Promise<T>,
  onTimeout: () => T | Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.timer(() => resolve(onTimeout()));
    // rounded up: timeouts that begin in one turn end together
    timer.set(Math.ceil(clock.now() + timeoutMs));
    work.finally(() => timer.stop()).then(resolve, reject);
  });
}

/** Resolves after the time. */
export function sleep(clock: TimerClock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(resolve).set(Math.ceil(clock.now() + ms)));
}

/** Turns an exception of the call into a rejection. */
export function rejectOnThrow<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}
