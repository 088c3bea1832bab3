/**
 * What callers do to a lock within a window of time, while they are at it: callers that get nothing do not prolong it,
 * and nothing that comes after it counts.
 */

import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import type { LockImplementation } from "./closed-loop.ts";
import { quantile } from "./stats.ts";

/**
 * Pairs between two turns of the event loop. No multiple of the callers: else always the same one would miss grants.
 */
const TURN_INTERVAL = 61;

export interface WindowLoad {
  readonly callers: number;
  /** Callers go round these in turn, so that with more keys than callers none meets another. */
  readonly keys: number;
  /** What to take the time of: a whole pair, the wait for a grant, or nothing where that would cost too much. */
  readonly timed: "pair" | "wait" | "nothing";
  /** Milliseconds of work under the lock: less than one is spent computing, more is waited for. Default 0. */
  readonly sectionMs?: number;
  /** Stands before the names of the keys: what one implementation leaves behind does not meet another. */
  readonly prefix?: string;
}

export interface WindowSample {
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

export interface WindowResult {
  /** Pairs since the beginning. */
  readonly pairs: number;
  /** Callers that still wait for their last grant. */
  readonly stuck: number;
}

export class SamplingWindow {
  readonly #load: WindowLoad;
  readonly #grants: number[];
  /** When each caller that waits began to. */
  readonly #waitingSince: number[];
  readonly #callers: Promise<unknown>;
  #isStopped = false;
  #pairs = 0;
  #active: number;
  #failure: unknown;
  #latencies: number[] = [];
  #markedAt = 0;
  #cpuBefore = process.cpuUsage();

  constructor(implementation: LockImplementation, load: WindowLoad) {
    this.#load = load;
    this.#grants = new Array<number>(load.callers).fill(0);
    this.#waitingSince = new Array<number>(load.callers).fill(Number.NaN);
    this.#active = load.callers;
    const names = Array.from({ length: load.keys }, (_, index) => `bench:${load.prefix ?? ""}${index}`);
    const caller = async (index: number): Promise<void> => {
      try {
        for (let turn = index; !this.#isStopped; turn += load.callers) {
          await this.#pair(implementation, names[turn % load.keys] as string, index);
        }
      } catch (error) {
        this.#failure ??= error;
      }
      this.#active--;
    };
    this.#callers = Promise.all(this.#grants.map((_, index) => caller(index)));
  }

  /** From here on it counts. */
  mark(): void {
    this.#grants.fill(0);
    this.#latencies = [];
    this.#cpuBefore = process.cpuUsage();
    this.#markedAt = performance.now();
  }

  /** @throws what a caller met */
  look(): WindowSample {
    if (this.#failure !== undefined) throw this.#failure;
    const now = performance.now();
    const { user, system } = process.cpuUsage(this.#cpuBefore);
    const waits = this.#waitingSince.filter((since) => !Number.isNaN(since)).map((since) => (now - since) * 1_000);
    return {
      ms: now - this.#markedAt,
      cpu: user + system,
      grantsPerCaller: [...this.#grants],
      p50: quantile(this.#latencies, 0.5),
      p99: quantile(this.#latencies, 0.99),
      most: [...this.#latencies, ...waits].reduce((max, latency) => Math.max(max, latency), 0),
    };
  }

  /** Lets every caller end its pair, within a bound. @throws what a caller met */
  async finish(withinMs: number): Promise<WindowResult> {
    this.#isStopped = true;
    await Promise.race([this.#callers, delay(withinMs, undefined, { ref: false })]);
    if (this.#failure !== undefined) throw this.#failure;
    return { pairs: this.#pairs, stuck: this.#active };
  }

  async #pair(implementation: LockImplementation, name: string, index: number): Promise<void> {
    const { timed, sectionMs = 0 } = this.#load;
    const before = timed === "nothing" ? 0 : performance.now();
    if (timed === "wait") this.#waitingSince[index] = before;
    const held = await implementation.acquire(name);
    if (timed === "wait") {
      this.#waitingSince[index] = Number.NaN;
      this.#latencies.push((performance.now() - before) * 1_000);
    }
    this.#grants[index] = (this.#grants[index] as number) + 1;
    if (sectionMs >= 1) await delay(sectionMs);
    else if (sectionMs > 0) spin(sectionMs);
    const release = implementation.release(held);
    if (release !== undefined) await release;
    if (timed === "pair") this.#latencies.push((performance.now() - before) * 1_000);
    this.#pairs++;
    // a caller that computes, or whose store answers at once as SQLite does, would never let the bench be heard
    if (this.#pairs % TURN_INTERVAL === 0) await turn();
  }
}

function spin(ms: number): void {
  const endsAt = performance.now() + ms;
  while (performance.now() < endsAt);
}
