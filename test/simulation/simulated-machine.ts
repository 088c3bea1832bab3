/**
 * A machine of the simulated world: it has its own clocks and can be stopped, sent to sleep and killed.
 *
 *   running  events happen on it
 *   paused   its clocks run on while it executes nothing (SIGSTOP, a long garbage collection); then all of it at once
 *   asleep   the same, but its monotonic clock stands still as well (a suspended laptop)
 *   dead     its pending events never happen
 */

import type { Clock, Timer } from "../../src/util/clock.ts";
import type { EventQueue, ScheduledEvent } from "./event-queue.ts";

/** No timer is armed for less: so rounding cannot keep the world at one time. */
const RESOLUTION_MS = 1e-6;

/** 2024, in milliseconds. */
const EPOCH_MS = 1_704_067_200_000;

export class SimulatedMachine {
  readonly name: string;
  readonly events: EventQueue;
  readonly clock: Clock;
  /** How fast its clocks run. */
  readonly rate: number;
  /** Timers that are set. */
  armedTimers = 0;
  state: "running" | "paused" | "asleep" | "dead" = "running";
  /** True time in which it did not run. */
  stoppedMs = 0;
  #stoppedAt = 0;
  #sleptMs = 0;
  #wallStepMs = 0;
  readonly #startAt: number;
  #backlog: { readonly isTimer: boolean; readonly run: () => void }[] = [];

  /** @param drift its clocks' rates lie within 1 plus or minus this */
  constructor(events: EventQueue, name: string, drift: number) {
    this.events = events;
    this.name = name;
    this.rate = 1 + (events.random.next() * 2 - 1) * drift;
    this.#startAt = events.random.int(1_000_000);
    this.clock = {
      now: () => this.now,
      wall: () => EPOCH_MS + this.#wallStepMs + this.events.now * this.rate,
      uptime: () => this.#startAt + this.events.now * this.rate,
      timer: (run) => this.#timer(run, 1),
    };
  }

  /** Its monotonic clock. */
  get now(): number {
    const asleepMs = this.state === "asleep" ? this.events.now - this.#stoppedAt : 0;
    return this.#startAt + (this.events.now - this.#sleptMs - asleepMs) * this.rate;
  }

  note(text: string): void {
    this.events.note(this.name, text);
  }

  /** Runs this on the machine, now or when it runs again. */
  execute(run: () => void, isTimer = false): void {
    if (this.state === "dead") return;
    if (this.state === "running") run();
    else this.#backlog.push({ isTimer, run });
  }

  /** By its own clock. Not one of the timers that are counted. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#timer(resolve, 0).set(this.now + ms));
  }

  stepWallClock(ms: number): void {
    this.note(`wall clock stepped by ${ms} ms`);
    this.#wallStepMs += ms;
  }

  pause(ms: number, isAsleep = false): void {
    if (this.state !== "running") return;
    this.note(isAsleep ? `asleep for ${ms} ms` : `paused for ${ms} ms`);
    this.#stoppedAt = this.events.now;
    this.state = isAsleep ? "asleep" : "paused";
    this.events.after(ms, () => this.#resume());
  }

  kill(): void {
    this.note("killed");
    this.state = "dead";
    this.#backlog = [];
  }

  /** How long it has not run so far. */
  get totalStoppedMs(): number {
    return this.stoppedMs + (this.state === "running" ? 0 : this.events.now - this.#stoppedAt);
  }

  #resume(): void {
    if (this.state === "dead" || this.state === "running") return;
    this.stoppedMs += this.events.now - this.#stoppedAt;
    if (this.state === "asleep") this.#sleptMs += this.events.now - this.#stoppedAt;
    this.state = "running";
    this.note("runs again");
    const backlog = this.#backlog;
    this.#backlog = [];
    // either all timers come first, as in Node, or all messages, whichever phase the loop was in
    const timersFirst = this.events.random.chance(0.5);
    backlog.sort((a, b) => Number(b.isTimer === timersFirst) - Number(a.isTimer === timersFirst));
    for (const { isTimer, run } of backlog) this.events.after(0, () => this.execute(run, isTimer));
  }

  #timer(run: () => void, counts: 0 | 1): Timer {
    let pending: ScheduledEvent | null = null;
    let due = 0;
    const clear = (): void => {
      if (pending === null) return;
      this.events.cancel(pending);
      pending = null;
      this.armedTimers -= counts;
    };
    const arm = (): void => {
      this.armedTimers += counts;
      const wait = Math.max((due - this.now) / this.rate, RESOLUTION_MS);
      const ownScheduledEvent: ScheduledEvent = this.events.after(wait, () =>
        this.execute(() => fire(ownScheduledEvent), true),
      );
      pending = ownScheduledEvent;
    };
    const fire = (ownScheduledEvent: ScheduledEvent): void => {
      if (pending !== ownScheduledEvent) return; // set again while it waited for the machine to run
      pending = null;
      this.armedTimers -= counts;
      // early by rounding, or because the clock stood still meanwhile
      if (this.now < due) arm();
      else run();
    };
    return {
      set: (time) => {
        if (time !== null && pending !== null && time === due) return;
        clear();
        if (time === null) return;
        due = time;
        arm();
      },
      keepAlive: () => {},
      stop: clear,
    };
  }
}
