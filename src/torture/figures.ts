/** What a history shows besides its violations: how much was asked for, how long things took, what struck. */

import { MICROS } from "./checks/findings.ts";
import type { Interval } from "./interval-index.ts";
import { IntervalIndex } from "./interval-index.ts";
import type { History, OperationRecord } from "./operations.ts";
import { beliefOf, isExclusive } from "./operations.ts";
import { countUpTo } from "./run-time.ts";

/** Faults of one process alone; all others may strike every process that uses the same connections or store. */
const FAULTS_OF_ONE: readonly string[] = ["kill", "pause", "block", "clock"];
/** A fault that lasts longer is judged by its beginning. */
const EFFECT_MS = 1_000;

type OperationsByKey = ReadonlyMap<string, readonly OperationRecord[]>;

/** Faults that struck a process with an operation under way. */
export function countEffectiveFaults({ operations, workers, faults, endedAt: end }: History): number {
  const byWorker = new Map<number | null, Interval[]>();
  for (const record of operations) {
    const { worker, invokedAt, releasedAt, endedAt } = record;
    const interval = { from: invokedAt, to: releasedAt ?? endedAt ?? workers.get(worker)?.endedAt ?? end };
    appendTo(byWorker, worker, interval);
    appendTo(byWorker, null, interval);
  }
  const indexes = new Map([...byWorker].map(([worker, intervals]) => [worker, new IntervalIndex(intervals)]));
  return faults.filter(({ beganAt, endedAt, workers: struck }) =>
    (struck ?? [null]).some((worker) => {
      // a process that was killed had its operation until then
      const to = Math.min(endedAt, beganAt + EFFECT_MS * MICROS);
      return indexes.get(worker)?.overlaps(beganAt - 1, Math.max(to, beganAt)) === true;
    }),
  ).length;
}

/** Grants for which another process held the key when it was asked for, in a way that excludes this one. */
export function countContended(byKey: OperationsByKey): number {
  const contended = new Set<OperationRecord>();
  for (const ofKey of byKey.values()) {
    const exclusive = new LatestHolds();
    const shared = new LatestHolds();
    for (const record of ofKey) {
      if (record.grantedAt === null) continue;
      const { worker, invokedAt } = record;
      // readers exclude no readers; some permits may exclude others
      const mayExclude = isExclusive(record) || record.limit !== null;
      if (exclusive.isHeldByOther(worker, invokedAt) || (mayExclude && shared.isHeldByOther(worker, invokedAt)))
        contended.add(record);
      const until = record.releasedAt ?? record.lostAt ?? record.saidUntil ?? record.grantedAt;
      (isExclusive(record) ? exclusive : shared).add(worker, until);
    }
  }
  return contended.size;
}

/**
 * Grants that the store has certainly made: a lock that goes on to the next holder of the same process, or was cached, gets the next
 * token without the store. A grant of the store may have that token, too; then it is not counted. Null: the subject has no tokens.
 */
export function countStoreGrants(byKey: OperationsByKey): number | null {
  let count = 0;
  let hasTokens = false;
  for (const [key, ofKey] of byKey) {
    const workerOfToken = new Map<bigint, number>();
    for (const { grantedAt, tokens, worker, keys } of ofKey) {
      const token = tokens?.get(key);
      if (grantedAt === null || token === undefined) continue;
      hasTokens = true;
      workerOfToken.set(token, worker);
      if (key === keys[0] && workerOfToken.get(token - 1n) !== worker) count++;
    }
  }
  return hasTokens ? count : null;
}

/** The latest end of a hold, and the latest one of another worker. */
class LatestHolds {
  #first = { worker: -1, until: Number.NEGATIVE_INFINITY };
  #second = { worker: -1, until: Number.NEGATIVE_INFINITY };

  add(worker: number, until: number): void {
    if (worker === this.#first.worker) this.#first = { worker, until: Math.max(until, this.#first.until) };
    else if (until > this.#first.until) {
      this.#second = this.#first;
      this.#first = { worker, until };
    } else if (until > this.#second.until) this.#second = { worker, until };
  }

  isHeldByOther(worker: number, at: number): boolean {
    return (this.#first.worker === worker ? this.#second : this.#first).until > at;
  }
}

/** Two requests that come within this may arrive in the other order: machines are busy. */
const ORDER_MS = 250;
/** So long after the end of a fault a client may still be without a connection, or wait where it came back. */
const AFTER_FAULT_MS = 5_000;

/**
 * Requests in strict order that were granted after a later one, although nothing had struck them: the order is that of arrival in the
 * store, and a process that is stopped or cut off arrives late, and a store that restarts asks all to come again.
 */
export function countOvertaken(history: History, byKey: OperationsByKey): number {
  const { ofAll, byWorker } = indexStrikes(history);
  let count = 0;
  for (const ofKey of byKey.values()) {
    let latest = 0;
    for (const { kind, worker, grantedAt, invokedAt } of ofKey) {
      if (kind !== "strict" || grantedAt === null) continue;
      const isLate = invokedAt < latest - ORDER_MS * MICROS;
      latest = Math.max(latest, invokedAt);
      if (!isLate || ofAll.overlaps(invokedAt, grantedAt)) continue;
      if (byWorker.get(worker)?.overlaps(invokedAt, grantedAt) !== true) count++;
    }
  }
  return count;
}

/** When all workers, and each single one, were struck or still felt it. */
function indexStrikes({ faults }: History): {
  readonly ofAll: IntervalIndex;
  readonly byWorker: ReadonlyMap<number, IntervalIndex>;
} {
  const ofAll: Interval[] = [];
  const byWorker = new Map<number, Interval[]>();
  for (const { fault, beganAt, endedAt, workers } of faults) {
    const interval = { from: beganAt, to: endedAt + AFTER_FAULT_MS * MICROS };
    if (workers === null || !FAULTS_OF_ONE.includes(fault)) ofAll.push(interval);
    else for (const worker of workers) appendTo(byWorker, worker, interval);
  }
  return {
    ofAll: new IntervalIndex(ofAll),
    byWorker: new Map([...byWorker].map(([worker, intervals]) => [worker, new IntervalIndex(intervals)])),
  };
}

function appendTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/**
 * From the death of a process that held a key to the next grant, where another one waited already and nothing else had struck: a
 * waiter before it that is stopped or has died keeps the key, too. In the order of length.
 */
export function waitsAfterCrashes({ workers, faults, header }: History, byKey: OperationsByKey): number[] {
  const waits: number[] = [];
  const leaseMicros = header.ttlMs * MICROS;
  // what a struck process has in the store ends within a lease
  const strikes = faults.map(({ fault, beganAt, endedAt, workers: struck }) => ({
    ...{ from: beganAt, to: (fault === "kill" ? beganAt : endedAt) + leaseMicros },
    killed: fault === "kill" ? struck?.[0] : undefined,
  }));
  const isStruck = (from: number, to: number, but: number): boolean =>
    strikes.some((strike) => strike.killed !== but && strike.from <= to && strike.to >= from);
  for (const ofKey of byKey.values()) {
    const granted = ofKey.filter(({ grantedAt }) => grantedAt !== null);
    for (const record of granted) {
      const worker = workers.get(record.worker);
      if (worker?.wasKilled !== true || worker.endedAt === null || !isExclusive(record)) continue;
      // it held when it died, and no longer if it had been stopped before
      const diedAt = worker.endedAt;
      if (beliefOf(record, workers)?.to !== diedAt) continue;
      const next = granted[countUpTo(granted, diedAt, ({ grantedAt }) => grantedAt as number)];
      // one that needs several keys may have waited for another one
      if (next?.grantedAt == null || next.invokedAt >= diedAt || next.keys.length > 1) continue;
      if (!isStruck(diedAt, next.grantedAt, record.worker)) waits.push((next.grantedAt - diedAt) / MICROS);
    }
  }
  return waits.sort((a, b) => a - b);
}

/** How long each granted request waited. In the order of length. */
export function waitTimes({ operations }: History): number[] {
  return operations
    .flatMap(({ grantedAt, invokedAt }) => (grantedAt === null ? [] : [(grantedAt - invokedAt) / MICROS]))
    .sort((a, b) => a - b);
}

export function bystanderTimes({ bystanders }: History): number[] {
  return bystanders.filter((ms) => ms !== null).sort((a, b) => a - b);
}
