/**
 * Progress: every request and every release is answered in time, in the time for which its process runs. After the repair each key that is
 * asked for is granted, and none is free for long while a request waits for it.
 */

import type { History, OperationRecord, WorkerRecord } from "../operations.ts";
import type { Findings } from "./findings.ts";
import { formatMs, MICROS } from "./findings.ts";

/** A busy machine, and a store that is being repaired, take their time. */
const LATE_ANSWER_MS = 5_000;
/** A waiting request notices within a lease that the key is free, even if no message tells it; a busy machine takes its time. */
const LONGEST_IDLE_MS = 2_000;

export function checkProgress(
  history: History,
  byKey: ReadonlyMap<string, readonly OperationRecord[]>,
  findings: Findings,
): { readonly longestIdleMs: number } {
  for (const record of history.operations) {
    const worker = history.workers.get(record.worker);
    if (worker === undefined) continue;
    checkAnswer(history, worker, record, findings);
    checkRelease(history, worker, record, findings);
  }
  for (const { worker, reason, endedAt, wasKilled } of history.workers.values())
    if (!wasKilled && reason !== "")
      findings.add("progress", endedAt ?? history.endedAt, null, [], `worker ${worker} ended: ${reason}`);
  let longest = 0;
  for (const [key, ofKey] of byKey) {
    checkGrants(history, key, ofKey, findings);
    longest = Math.max(longest, checkIdle(history, key, ofKey, findings));
  }
  return { longestIdleMs: longest / MICROS };
}

function checkAnswer({ endedAt }: History, worker: WorkerRecord, record: OperationRecord, findings: Findings): void {
  const { invokedAt, waitMs } = record;
  const answeredAt = record.grantedAt ?? record.endedAt;
  const late = worker.runTime.between(invokedAt + waitMs * MICROS, answeredAt ?? endedAt);
  const hasEnded = worker.endedAt !== null && !worker.wasKilled && worker.reason === "";
  const [key = null] = record.keys;
  if (answeredAt === null && hasEnded)
    findings.add("progress", invokedAt, key, [record], "a request was never answered, and its process has ended");
  else if (late > LATE_ANSWER_MS * MICROS)
    findings.add(
      "progress",
      invokedAt,
      key,
      [record],
      `a request to wait ${waitMs} ms ${answeredAt === null ? "was not answered" : "was answered"} ${formatMs(late)} later`,
    );
}

function checkRelease(history: History, worker: WorkerRecord, record: OperationRecord, findings: Findings): void {
  const { releasingAt, releasedAt, keys } = record;
  if (releasingAt === null) return;
  const took = worker.runTime.between(releasingAt, releasedAt ?? history.endedAt);
  // one that cannot reach the store ends with the lease
  if (took > (LATE_ANSWER_MS + history.header.ttlMs) * MICROS)
    findings.add(
      "progress",
      releasingAt,
      keys[0] ?? null,
      [record],
      `a release was not answered for ${formatMs(took)}`,
    );
}

function checkGrants(
  { header, healedAt, stoppingAt }: History,
  key: string,
  ofKey: readonly OperationRecord[],
  findings: Findings,
): void {
  if (healedAt === null || stoppingAt === null) return;
  // one that waits for less than a lease may come while a claim of before the repair still has the key
  const asked = ofKey.filter(
    ({ invokedAt, waitMs }) => waitMs >= header.ttlMs && invokedAt > healedAt && invokedAt < stoppingAt,
  );
  if (asked.length > 0 && !ofKey.some(({ grantedAt }) => grantedAt !== null && grantedAt > healedAt))
    findings.add(
      "progress",
      healedAt,
      key,
      asked.slice(0, 2),
      `none of ${asked.length} requests was granted after all faults were repaired`,
    );
}

/** The longest time in which the key was free although a request waited for it, from two leases after the repair on. */
function checkIdle(history: History, key: string, ofKey: readonly OperationRecord[], findings: Findings): number {
  const { healedAt, header } = history;
  if (healedAt === null) return 0;
  const lease = header.ttlMs * MICROS;
  let longest = 0;
  for (const { from, to } of findIdle(history, ofKey, healedAt + 2 * lease)) {
    longest = Math.max(longest, to - from);
    if (to - from > lease + LONGEST_IDLE_MS * MICROS)
      findings.add(
        "progress",
        from,
        key,
        [],
        `it was free for ${formatMs(to - from)} although a request waited for it`,
      );
  }
  return longest;
}

function* findIdle(
  history: History,
  ofKey: readonly OperationRecord[],
  since: number,
): Generator<{ readonly from: number; readonly to: number }> {
  const changes: { at: number; busy: number; waiting: number }[] = [];
  for (const record of ofKey) {
    const busy = busyTime(history, record);
    if (busy !== null) changes.push({ at: busy.from, busy: 1, waiting: 0 }, { at: busy.to, busy: -1, waiting: 0 });
    const ends = record.grantedAt ?? record.endedAt ?? history.workers.get(record.worker)?.endedAt ?? history.endedAt;
    if (record.waitMs > 0)
      changes.push({ at: record.invokedAt, busy: 0, waiting: 1 }, { at: ends, busy: 0, waiting: -1 });
  }
  changes.sort((a, b) => a.at - b.at);
  let busy = 0;
  let waiting = 0;
  let from = 0;
  for (const change of changes) {
    const wasIdle = busy === 0 && waiting > 0;
    if (wasIdle && change.at > since) yield { from: Math.max(from, since), to: change.at };
    busy += change.busy;
    waiting += change.waiting;
    if (!wasIdle || busy > 0 || waiting === 0) from = change.at;
  }
}

/** From when to when an operation may keep others from a key. */
function busyTime(
  { header, workers, endedAt: end }: History,
  record: OperationRecord,
): { readonly from: number; readonly to: number } | null {
  const lease = header.ttlMs * MICROS;
  const { invokedAt, grantedAt, releasedAt, endedAt, isUnknown } = record;
  const diedAt = workers.get(record.worker)?.endedAt ?? null;
  // the store may have granted it
  if (isUnknown && endedAt !== null) return { from: invokedAt, to: endedAt + lease };
  // while it waits for one key, it has those before
  if (record.keys.length > 1) return { from: invokedAt, to: releasedAt ?? endedAt ?? (diedAt ?? end) + lease };
  if (grantedAt === null) return diedAt === null ? null : { from: diedAt, to: diedAt + lease };
  return { from: grantedAt, to: releasedAt ?? (diedAt ?? end) + lease };
}
