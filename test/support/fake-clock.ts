/** A clock that tests move. Wall time and uptime can run apart from the monotonic clock, as on a machine that sleeps. */

import { ManualTime } from "../../src/testing/manual-time.ts";
import type { Clock, Timer } from "../../src/util/clock.ts";

export class FakeClock implements Clock {
  /** The wall clock's lead over the monotonic one. */
  wallOffsetMs = 1_800_000_000_000;
  #uptimeOffsetMs = 50_000;
  readonly #time: ManualTime;
  /** How often a timer has fired. */
  timerFires = 0;

  constructor(start = 1_000) {
    this.#time = new ManualTime(start);
  }

  now(): number {
    return this.#time.now;
  }
  wall(): number {
    return this.wallOffsetMs + this.#time.now;
  }
  uptime(): number {
    return this.#uptimeOffsetMs + this.#time.now;
  }
  timer(run: () => void): Timer {
    return this.#time.timer(() => {
      this.timerFires++;
      run();
    });
  }

  /** Timers with a due time. */
  get pendingTimers(): number {
    return this.#time.pendingTimers;
  }

  /** Time passes, but no timer fires yet. */
  jump(ms: number): void {
    this.#time.now += ms;
  }

  /** The machine sleeps: the monotonic clock stands still, the others go on. */
  suspend(ms: number): void {
    this.wallOffsetMs += ms;
    this.#uptimeOffsetMs += ms;
  }

  /** Lets time pass, from one due timer to the next, with all that follows from each. */
  advance(ms: number): Promise<void> {
    return this.#time.advance(ms, flushEventLoop);
  }
}

/** The clock of a machine whose wall clock is ahead of another one's. */
export function withWallOffset(clock: Clock, offsetMs: () => number): Clock {
  return {
    now: () => clock.now(),
    wall: () => clock.wall() + offsetMs(),
    uptime: () => clock.uptime(),
    timer: (run) => clock.timer(run),
  };
}

/** Enough turns of the event loop for calls and answers to pass between clients, server and disk. */
export async function flushEventLoop(count = 12): Promise<void> {
  for (let turn = 0; turn < count; turn++) {
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}
