/** The clocks of test locks: one that a test advances, and one that follows the timers of the test runner. */

import type { Clock } from "../util/clock.ts";
import { MAX_TIMEOUT_MS } from "../util/duration.ts";
import type { ManualTime } from "./manual-time.ts";

/** A clock on manual time. Its wall clock starts at the date of the process, which a test may have set. */
export function manualClock(time: ManualTime): Clock {
  const startedAt = Date.now();
  return {
    now: () => time.now,
    wall: () => startedAt + time.now,
    uptime: () => time.now,
    timer: (run) => time.timer(run),
  };
}

/** The date and the timeouts of the process. They are looked up at each call, since fake timers replace them. */
export const timersClock: Clock = {
  now: () => Date.now(),
  wall: () => Date.now(),
  uptime: () => Date.now(),
  timer(run) {
    let handle: NodeJS.Timeout | undefined;
    const stop = (): void => clearTimeout(handle);
    return {
      set(due) {
        stop();
        if (due === null) return;
        handle = setTimeout(run, Math.min(Math.max(due - Date.now(), 0), MAX_TIMEOUT_MS));
        handle.unref?.(); // a number under jsdom
      },
      keepAlive: () => undefined,
      stop,
    };
  },
};
