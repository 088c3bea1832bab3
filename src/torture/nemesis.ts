/** Injects faults, one or two at a time, in an order and with lengths that a seed decides, and repairs each of them. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../testing/random.ts";
import type { NemesisEvent } from "./history.ts";

/** A fault that has begun. */
export interface Strike {
  /** The workers that it strikes; null: all of them, through the store. */
  readonly workers: readonly number[] | null;
  /** How long it lasts until it is repaired. */
  readonly ms: number;
  repair(): Promise<void>;
}

export interface Fault {
  readonly name: string;
  /** What must be so before it begins; it is no part of it. */
  prepare(random: Random, place: number): Promise<void>;
  /** Begins it, at best on the worker of this place. Null: it is not possible at this moment. */
  strike(random: Random, place: number): Promise<Strike | null>;
}

export interface NemesisOptions {
  readonly faults: readonly Fault[];
  /** How many places of workers there are. */
  readonly places: number;
  readonly random: Random;
  readonly ttlMs: number;
  report(event: NemesisEvent): void;
  now(): number;
}

/** The share of rounds with two faults. */
const PAIR_CHANCE = 0.6;

/** Injects faults until the time has passed; all are repaired when it settles. Ends earlier when `signal` is aborted. */
export async function injectFaults(options: NemesisOptions, ms: number, signal: AbortSignal): Promise<void> {
  const { faults, places, random, ttlMs } = options;
  const endsAt = performance.now() + ms;
  let id = 0;
  if (faults.length === 0) {
    await delay(ms, undefined, { signal }).catch(() => undefined);
    return;
  }
  while (performance.now() < endsAt && !signal.aborted) {
    const first = random.pick(faults as [Fault, ...Fault[]]);
    const others = faults.filter((fault) => fault !== first);
    const second = others.length > 0 && random.chance(PAIR_CHANCE) ? random.pick(others as [Fault, ...Fault[]]) : null;
    // the same one: a fault shows most on a worker that another one has delayed
    const place = random.int(places);
    const lagMs = random.int(ttlMs / 2);
    const restMs = Math.max(endsAt - performance.now(), 0);
    await Promise.all([
      injectFault(options, first, place, id++, restMs, signal),
      second !== null && delay(lagMs).then(() => injectFault(options, second, place, id++, restMs, signal)),
    ]);
    await delay(ttlMs / 5 + random.int(ttlMs), undefined, { signal }).catch(() => undefined);
  }
}

/** Injects a fault for as long as it lasts, but at most `longestMs`, and repairs it. False: it was not possible. */
export async function injectFault(
  { random, report, now }: Pick<NemesisOptions, "random" | "report" | "now">,
  fault: Fault,
  place: number,
  id: number,
  longestMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  await fault.prepare(random, place);
  const at = now();
  const strike = await fault.strike(random, place);
  if (strike === null) return false;
  const mark = { event: "fault", fault: fault.name, id, workers: strike.workers } as const;
  report({ ...mark, at, phase: "begin" });
  await delay(Math.min(strike.ms, longestMs), undefined, { signal }).catch(() => undefined);
  await strike.repair();
  report({ ...mark, at: now(), phase: "end" });
  return true;
}
