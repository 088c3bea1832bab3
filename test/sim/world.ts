/** Virtual time: a queue of things that happen, and the trace of what did. Everything in it comes from one seed. */

import type { Scheduled } from "../../src/core/schedule.ts";
import { Schedule } from "../../src/core/schedule.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";

/** Something that will happen; it can be called off. */
export interface Happening extends Scheduled {
  run: () => void;
}

/** How to play. */
export interface WorldOptions {
  /** Prints what happens. */
  readonly trace?: boolean;
  /** As the simulation was then: 1 at first, each addition one more. Default: as it is now. */
  readonly as?: number;
}

/** Lines of the trace kept for a report. */
const KEPT = 400;

export class World {
  /** True time, milliseconds. No machine knows it. */
  now = 0;
  readonly random: SeededRandom;
  /** What was added after seeds had been kept: theirs play as before. Null: nothing of it happens. Re-entry, and no state: */
  readonly extras: SeededRandom | null;
  /** Parts of the store, and answers left out. */
  readonly parts: SeededRandom | null;
  readonly #queue = new Schedule<Happening>();
  readonly #lines: string[] = [];
  readonly #print: boolean;
  #failure: string | null = null;
  /** Of all lines of the trace: two runs that did the same have the same. */
  digest = 0;
  happened = 0;
  /** Called after everything that happens. */
  check: () => void = () => {};

  constructor(seed: number, { trace = false, as = 3 }: WorldOptions = {}) {
    this.random = seededRandom(seed);
    this.extras = as >= 2 ? seededRandom(seed ^ 0x2545f491) : null;
    this.parts = as >= 3 ? seededRandom(seed ^ 0x1b873593) : null;
    this.#print = trace;
  }

  at(time: number, run: () => void): Happening {
    const happening: Happening = { run, dueAt: 0, heapIndex: -1 };
    this.#queue.set(happening, Math.max(time, this.now));
    return happening;
  }

  after(ms: number, run: () => void): Happening {
    return this.at(this.now + ms, run);
  }

  callOff(happening: Happening): void {
    this.#queue.remove(happening);
  }

  /** Lets things happen until `done`, or until that time; between any two of them promises run to their ends. */
  async run(until: number, done: () => boolean = () => false): Promise<void> {
    await turn();
    while (this.#failure === null && !done()) {
      const next = this.#queue.takeDue(until);
      if (next === null) break;
      this.now = next.dueAt;
      this.happened++;
      next.run();
      await turn();
      if (this.#failure === null) this.check();
    }
    if (this.#failure === null && !done()) this.now = Math.max(this.now, until);
  }

  /** Who did what, for the reader of a failure. */
  note(who: string, what: string): void {
    const line = `${this.now.toFixed(3).padStart(12)}  ${who.padEnd(8)} ${what}`;
    for (let index = 0; index < line.length; index++) this.digest = (this.digest * 31 + line.charCodeAt(index)) | 0;
    this.#lines.push(line);
    if (this.#lines.length > 2 * KEPT) this.#lines.splice(0, KEPT);
    if (this.#print) console.log(line);
  }

  /** An invariant is broken; the first one counts, and the world stops. */
  fail(what: string): void {
    if (this.#failure !== null) return;
    this.note("CHECKER", what);
    this.#failure = what;
  }

  get failure(): string | null {
    return this.#failure;
  }

  /** The end of the trace. */
  lastLines(count = KEPT): readonly string[] {
    return this.#lines.slice(-count);
  }
}

/** All promises that can go on have done so. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
