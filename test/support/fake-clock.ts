/** A clock that tests move. Wall time and uptime can run apart from the monotonic clock, as on a machine that sleeps. */

import type { Clock, Timer } from "../../src/util/clock.ts";

export interface FakeClock extends Clock {
  /** Lets time pass and fires what is due on the way, with promises settled in between. */
  advance(ms: number): Promise<void>;
  /** The machine sleeps: the monotonic clock stands still, the others go on. */
  suspend(ms: number): void;
  /** Somebody sets the wall clock. */
  setWallClock(byMs: number): void;
  /** Timers with a due time. */
  readonly pendingTimers: number;
}

export function fakeClock(start = 1_000): FakeClock {
  let now = start;
  let wallAhead = 1_700_000_000_000;
  let uptimeAhead = 50_000;
  const timers = new Map<object, { due: number; run: () => void }>();

  /** Promise chains of any sensible length have run. */
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  return {
    now: () => now,
    wall: () => now + wallAhead,
    uptime: () => now + uptimeAhead,
    timer(run): Timer {
      const key = {};
      return {
        set(due) {
          if (due === null) timers.delete(key);
          else timers.set(key, { due, run });
        },
        keepAlive() {},
        stop() {
          timers.delete(key);
        },
      };
    },
    async advance(ms) {
      const end = now + ms;
      await settle();
      for (;;) {
        const next = [...timers].filter(([, { due }]) => due <= end).sort(([, a], [, b]) => a.due - b.due)[0];
        if (next === undefined) break;
        const [key, { due, run }] = next;
        timers.delete(key);
        now = Math.max(now, due);
        run();
        await settle();
      }
      now = end;
      await settle();
    },
    suspend(ms) {
      wallAhead += ms;
      uptimeAhead += ms;
    },
    setWallClock(byMs) {
      wallAhead += byMs;
    },
    get pendingTimers() {
      return timers.size;
    },
  };
}
