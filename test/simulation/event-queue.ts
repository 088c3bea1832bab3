/** Virtual time: a queue of events, and the trace of past ones. Everything in it follows from one seed. */

import type { HeapItem } from "../../src/util/deadline-heap.ts";
import { DeadlineHeap } from "../../src/util/deadline-heap.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";

/** A future event, which can be cancelled. */
export interface ScheduledEvent extends HeapItem {
  run: () => void;
}

/** How to run. */
export interface EventQueueOptions {
  /** Prints the events. */
  readonly trace?: boolean;
  /** The revision of the simulation: 1 at first, each addition one more. Default: the present one. */
  readonly revision?: number;
}

/** Lines of the trace kept for a report. */
const MAX_KEPT_LINES = 400;

export class EventQueue {
  /** True time, milliseconds. No machine knows it. */
  now = 0;
  readonly random: SeededRandom;
  /** What was added after seeds had been kept: theirs play as before. Null: nothing of it happens. Re-entry, and no state: */
  readonly extrasRandom: SeededRandom | null;
  /** Parts of the store, and answers left out. */
  readonly storePartsRandom: SeededRandom | null;
  /** Recalls and cached locks. */
  readonly recallRandom: SeededRandom | null;
  readonly #queue = new DeadlineHeap<ScheduledEvent>();
  readonly #lines: string[] = [];
  readonly #print: boolean;
  #failure: string | null = null;
  /** A digest of all lines of the trace: two equal runs have the same. */
  digest = 0;
  eventCount = 0;
  /** Called after each event. */
  check: () => void = () => {};

  constructor(seed: number, { trace = false, revision = 4 }: EventQueueOptions = {}) {
    this.random = seededRandom(seed);
    this.extrasRandom = revision >= 2 ? seededRandom(seed ^ 0x2545f491) : null;
    this.storePartsRandom = revision >= 3 ? seededRandom(seed ^ 0x1b873593) : null;
    this.recallRandom = revision >= 4 ? seededRandom(seed ^ 0x61c88647) : null;
    this.#print = trace;
  }

  schedule(time: number, run: () => void): ScheduledEvent {
    const scheduledEvent: ScheduledEvent = { run, dueAt: 0, heapIndex: -1 };
    this.#queue.set(scheduledEvent, Math.max(time, this.now));
    return scheduledEvent;
  }

  after(ms: number, run: () => void): ScheduledEvent {
    return this.schedule(this.now + ms, run);
  }

  cancel(scheduledEvent: ScheduledEvent): void {
    this.#queue.remove(scheduledEvent);
  }

  /** Processes events until `done`, or until that time; between any two of them promises run to their ends. */
  async run(endTime: number, isDone: () => boolean = () => false): Promise<void> {
    await nextTurn();
    while (this.#failure === null && !isDone()) {
      const next = this.#queue.takeDue(endTime);
      if (next === null) break;
      this.now = next.dueAt;
      this.eventCount++;
      next.run();
      await nextTurn();
      if (this.#failure === null) this.check();
      // the check makes clients read their clocks: what they send for it leaves now, not at the time of the next event
      await Promise.resolve();
    }
    if (this.#failure === null && !isDone()) this.now = Math.max(this.now, endTime);
  }

  /** A trace line, for the reader of a failure. */
  note(who: string, text: string): void {
    const line = `${this.now.toFixed(3).padStart(12)}  ${who.padEnd(8)} ${text}`;
    for (let index = 0; index < line.length; index++) this.digest = (this.digest * 31 + line.charCodeAt(index)) | 0;
    this.#lines.push(line);
    if (this.#lines.length > 2 * MAX_KEPT_LINES) this.#lines.splice(0, MAX_KEPT_LINES);
    if (this.#print) console.log(line);
  }

  /** An invariant is violated; the first violation counts, and the run stops. */
  fail(text: string): void {
    if (this.#failure !== null) return;
    this.note("CHECKER", text);
    this.#failure = text;
  }

  get failure(): string | null {
    return this.#failure;
  }

  /** The end of the trace. */
  lastLines(count = MAX_KEPT_LINES): readonly string[] {
    return this.#lines.slice(-count);
  }
}

/** All promises that can proceed have settled. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
