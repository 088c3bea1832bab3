/** Bounds for calls that may throw at once, or never settle. */

import type { Clock } from "./clock.ts";

/** How often an empty timer fires: hardly ever. */
const KEEP_ALIVE_MS = 60_000;

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

/**
 * Keeps the process alive until the work has settled, although its sockets and timers may not. A timer that ended with the time for the
 * work would not do: those of the work end a moment later, and the process would have exited without an answer.
 */
export async function keepProcessAlive<T>(clock: TimerClock, work: () => Promise<T>): Promise<T> {
  const timer = clock.timer(() => timer.set(clock.now() + KEEP_ALIVE_MS));
  timer.set(clock.now() + KEEP_ALIVE_MS);
  timer.keepAlive(true);
  try {
    return await work();
  } finally {
    timer.stop();
  }
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
