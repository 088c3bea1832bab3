/** A clock that tests move. Wall time and uptime can run apart from the monotonic clock, as on a machine that sleeps. */

import type { Clock, Timer } from "../../src/util/clock.ts";

export class FakeClock implements Clock {
  /** The wall clock's lead over the monotonic one. */
  wallOffsetMs = 1_800_000_000_000;
  #uptimeOffsetMs = 50_000;
  #now: number;
  /** How often a timer has fired. */
  timerFires = 0;
  readonly #timers = new Map<Timer, { readonly due: number; readonly run: () => void }>();

  constructor(start = 1_000) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }
  wall(): number {
    return this.wallOffsetMs + this.#now;
  }
  uptime(): number {
    return this.#uptimeOffsetMs + this.#now;
  }
  timer(run: () => void): Timer {
    const timer: Timer = {
      set: (due) => {
        if (due === null) this.#timers.delete(timer);
        else this.#timers.set(timer, { due, run });
      },
      keepAlive: () => undefined,
      stop: () => timer.set(null),
    };
    return timer;
  }

  /** Timers with a due time. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Time passes, but no timer fires yet. */
  jump(ms: number): void {
    this.#now += ms;
  }

  /** The machine sleeps: the monotonic clock stands still, the others go on. */
  suspend(ms: number): void {
    this.wallOffsetMs += ms;
    this.#uptimeOffsetMs += ms;
  }

  /** Lets time pass, from one due timer to the next, with all that follows from each. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await flushEventLoop();
    for (let timer = this.#findDue(end); timer !== null; timer = this.#findDue(end)) {
      const { due, run } = this.#timers.get(timer) as { due: number; run: () => void };
      this.#timers.delete(timer);
      this.#now = Math.max(this.#now, due);
      this.timerFires++;
      run();
      await flushEventLoop();
    }
    this.#now = Math.max(this.#now, end);
  }

  /** The timer that fires first, of those due until `end`; the oldest of several. */
  #findDue(end: number): Timer | null {
    let first: Timer | null = null;
    let firstDue = Number.POSITIVE_INFINITY;
    for (const [timer, { due }] of this.#timers) {
      if (due <= end && due < firstDue) [first, firstDue] = [timer, due];
    }
    return first;
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
