/**
 * What callers do to a lock within a window of time, while they are at it: callers that get nothing do not prolong it, and
 * nothing that comes after it counts.
 */

import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import { quantile } from "./stats.ts";
import type { Contestant } from "./workload.ts";

/** Computed sections between two turns of the event loop. */
const STRIDE = 64;

export interface Load {
  readonly callers: number;
  /** Callers go round these in turn, so that with more keys than callers none meets another. */
  readonly keys: number;
  /** What to take the time of: a whole pair, the wait for a grant, or nothing where that would cost too much. */
  readonly timed: "pair" | "wait" | "nothing";
  /** Milliseconds of work under the lock: less than one is spent computing, more is waited for. Default 0. */
  readonly sectionMs?: number;
  /** Stands before the names of the keys: what one contestant leaves behind does not meet another. */
  readonly prefix?: string;
}

export interface Look {
  readonly ms: number;
  /** Of this process, microseconds. */
  readonly cpu: number;
  readonly grantsPerCaller: readonly number[];
  /** Microseconds; NaN where nothing was timed. */
  readonly p50: number;
  readonly p99: number;
  /** The longest, those counted in that still wait. */
  readonly most: number;
}

export interface Finish {
  /** Pairs since the beginning. */
  readonly pairs: number;
  /** Callers that still wait for their last grant. */
  readonly stuck: number;
}

export class Window {
  readonly #load: Load;
  readonly #grants: number[];
  /** When each caller that waits began to. */
  readonly #since: number[];
  readonly #all: Promise<unknown>;
  #isOver = false;
  #pairs = 0;
  #active: number;
  #failure: unknown;
  #took: number[] = [];
  #markedAt = 0;
  #cpuBefore = process.cpuUsage();

  constructor(contestant: Contestant, load: Load) {
    this.#load = load;
    this.#grants = new Array<number>(load.callers).fill(0);
    this.#since = new Array<number>(load.callers).fill(Number.NaN);
    this.#active = load.callers;
    const names = Array.from({ length: load.keys }, (_, index) => `bench:${load.prefix ?? ""}${index}`);
    const caller = async (index: number): Promise<void> => {
      try {
        for (let turn = index; !this.#isOver; turn += load.callers) {
          await this.#pair(contestant, names[turn % load.keys] as string, index);
        }
      } catch (error) {
        this.#failure ??= error;
      }
      this.#active--;
    };
    this.#all = Promise.all(this.#grants.map((_, index) => caller(index)));
  }

  /** From here on it counts. */
  mark(): void {
    this.#grants.fill(0);
    this.#took = [];
    this.#cpuBefore = process.cpuUsage();
    this.#markedAt = performance.now();
  }

  /** @throws what a caller met */
  look(): Look {
    if (this.#failure !== undefined) throw this.#failure;
    const now = performance.now();
    const { user, system } = process.cpuUsage(this.#cpuBefore);
    const waits = this.#since.filter((since) => !Number.isNaN(since)).map((since) => (now - since) * 1_000);
    return {
      ms: now - this.#markedAt,
      cpu: user + system,
      grantsPerCaller: [...this.#grants],
      p50: quantile(this.#took, 0.5),
      p99: quantile(this.#took, 0.99),
      most: [...this.#took, ...waits].reduce((most, one) => Math.max(most, one), 0),
    };
  }

  /** Lets every caller end its pair, within a bound. @throws what a caller met */
  async finish(withinMs: number): Promise<Finish> {
    this.#isOver = true;
    await Promise.race([this.#all, delay(withinMs, undefined, { ref: false })]);
    if (this.#failure !== undefined) throw this.#failure;
    return { pairs: this.#pairs, stuck: this.#active };
  }

  async #pair(contestant: Contestant, name: string, index: number): Promise<void> {
    const { timed, sectionMs = 0 } = this.#load;
    const before = timed === "nothing" ? 0 : performance.now();
    if (timed === "wait") this.#since[index] = before;
    const held = await contestant.acquire(name);
    if (timed === "wait") {
      this.#since[index] = Number.NaN;
      this.#took.push((performance.now() - before) * 1_000);
    }
    this.#grants[index] = (this.#grants[index] as number) + 1;
    if (sectionMs >= 1) await delay(sectionMs);
    else if (sectionMs > 0) compute(sectionMs);
    const done = contestant.release(held);
    if (done !== undefined) await done;
    if (timed === "pair") this.#took.push((performance.now() - before) * 1_000);
    this.#pairs++;
    // who computes and locks nothing would never let the bench be heard
    if (sectionMs > 0 && sectionMs < 1 && this.#pairs % STRIDE === 0) await turn();
  }
}

function compute(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}
