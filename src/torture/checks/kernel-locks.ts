/**
 * Exclusion, by a second witness: each holder takes the kernel's lock on the file of its key. It may find it taken for good reasons only:
 * an earlier holder that believes no more has yet to notice, since it is stopped or busy, or it was killed, and its flock(1) ends later.
 */

import type { History, OperationRecord } from "../operations.ts";
import { beliefOf, isExclusive, operationId } from "../operations.ts";
import type { Findings } from "./findings.ts";
import { MICROS } from "./findings.ts";

/** flock(1) of a process that was killed may live for a moment more. */
const KERNEL_LAG_MS = 3_000;

/** An operation that has the kernel's lock, or may have it. */
interface FileLock {
  readonly record: OperationRecord;
  readonly from: number;
  readonly to: number;
}

export function checkKernelLocks(
  history: History,
  byKey: ReadonlyMap<string, readonly OperationRecord[]>,
  findings: Findings,
): void {
  const unlockedAt = new Map<string, number>();
  const answers = new Map<string, boolean>();
  for (const event of history.kernel) {
    const id = `${operationId(event)}/${event.key}`;
    if (event.event === "unlocked") unlockedAt.set(id, event.at);
    else answers.set(id, event.taken);
  }
  const takenAt = history.kernel.filter((event) => event.event === "kernel" && event.taken);
  for (const [key, ofKey] of byKey) {
    const attemptAt = new Map(takenAt.flatMap((event) => (event.key === key ? [[operationId(event), event.at]] : [])));
    if (attemptAt.size === 0) continue;
    const locks = ofKey.flatMap((record): FileLock[] => {
      const id = `${operationId(record)}/${key}`;
      // those of a semaphore do not use the file
      if (record.limit !== null && !isExclusive(record)) return [];
      if (record.grantedAt === null || answers.get(id) === true) return [];
      const worker = history.workers.get(record.worker);
      const died = worker?.endedAt == null ? Number.POSITIVE_INFINITY : worker.endedAt + KERNEL_LAG_MS * MICROS;
      // one that has not reported an answer may have it, too
      const to = unlockedAt.get(id) ?? record.releasingAt ?? died;
      return [{ record, from: record.grantedAt, to }];
    });
    checkKey(history, key, ofKey, attemptAt, locks, findings);
  }
}

function checkKey(
  { workers }: History,
  key: string,
  ofKey: readonly OperationRecord[],
  attemptAt: ReadonlyMap<string, number>,
  locks: readonly FileLock[],
  findings: Findings,
): void {
  const attempts = ofKey
    .filter((record) => record.heldFrom !== null && attemptAt.has(operationId(record)))
    .sort((a, b) => (a.heldFrom as number) - (b.heldFrom as number));
  let begun = 0;
  let active: FileLock[] = [];
  for (const record of attempts) {
    const belief = beliefOf(record, workers);
    const at = attemptAt.get(operationId(record)) as number;
    // it may have been stopped between its grant and the attempt
    if (belief === null || at >= belief.to) continue;
    for (let lock = locks[begun]; lock !== undefined && lock.from <= belief.from; lock = locks[++begun])
      active.push(lock);
    active = active.filter(({ to }) => to > belief.from);
    // a process that was killed believes nothing since then
    const isExplained = active.some(({ record: holder }) => (beliefOf(holder, workers)?.to ?? 0) <= belief.from);
    if (isExplained) continue;
    const holders = active.map((lock) => lock.record).filter((holder) => holder !== record);
    findings.add("exclusion", at, key, [...holders, record], "the kernel's lock on the key's file was still taken");
  }
}
