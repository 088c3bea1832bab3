/**
 * The verdict on a history, in linear time besides sorting. The register's log and the workers' clocks are compared; what a subject has is
 * tokens, or else only its word.
 *
 * Exclusion     no two incompatible operations certainly believe at one time that they hold a key (operations.ts, beliefOf), and
 *               none takes the kernel's lock on a key's file beside one that believes.
 * Tokens        if one operation was granted before another one was invoked, its token is lower. No token is granted twice.
 * Register      the fenced register accepts no write after another operation has entered, and refuses none that believes.
 * Release       a release that answers "was held" comes before any other operation has held.
 * Notice        a holder that runs is told that it has lost the lock.
 * Progress      every request ends in time, and after the repair each key that is asked for is granted.
 * Remains       after two leases nothing is left in the store.
 *
 * A run in which no fault took effect, or without contention, tells nothing: the verdict is "unknown".
 */

import type { RegisterEvent } from "./history.ts";
import type { FaultRecord, History, OperationRecord } from "./operations.ts";
import { beliefOf, isCompatible, operationId } from "./operations.ts";

export const INVARIANTS = ["exclusion", "tokens", "register", "release", "notice", "progress", "remains"] as const;
export type Invariant = (typeof INVARIANTS)[number];

export interface Violation {
  readonly invariant: Invariant;
  readonly message: string;
  /** Microseconds since the start of the run. */
  readonly at: number;
  readonly key: string | null;
  /** The operations concerned, as "worker/op". */
  readonly operations: readonly string[];
}

/** What a run has shown. Times in milliseconds. */
export interface Figures {
  readonly requests: number;
  readonly holds: number;
  readonly sections: number;
  /** Grants while another operation held or waited. */
  readonly contended: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly effectiveFaults: number;
  readonly doubleHolds: number;
  readonly doubleHoldMs: number;
  readonly tokenRegressions: number;
  /** Writes after another operation has entered. */
  readonly staleWritesRefused: number;
  readonly staleWritesAccepted: number;
  /** Accepted where nothing looks at tokens. */
  readonly staleWritesUnfenced: number;
  readonly losses: number;
  readonly latestNoticeMs: number;
  readonly grantsWithoutLease: number;
  readonly longestWaitMs: number;
  readonly medianWaitMs: number;
  /** Requests in strict order that were granted before an earlier one. */
  readonly inversions: number;
  readonly longestIdleMs: number;
  readonly afterCrashMs: readonly number[];
  readonly bystanderMedianMs: number | null;
  readonly bystanderLongestMs: number | null;
  readonly leftovers: number | null;
}

export interface Verdict {
  readonly verdict: "ok" | "violated" | "unknown";
  readonly violations: readonly Violation[];
  /** Why the verdict is unknown. */
  readonly reasons: readonly string[];
  readonly figures: Figures;
}

const MICROS = 1_000;
/** A request may end so much after its wait: a busy machine and one that is being repaired take their time. */
const LATE_REQUEST_MS = 5_000;
/** A holder whose process runs learns of the end of its lease within this. */
const LATE_NOTICE_MS = 2_000;
/** flock(1) of a process that was killed may live for a moment more. */
const KERNEL_LAG_MS = 1_000;
/** Fewer show nothing. */
const LEAST_CONTENDED = 20;

/** @param findings counts on what the other checks find */
interface Findings {
  readonly violations: Violation[];
  add(
    invariant: Invariant,
    at: number,
    key: string | null,
    operations: readonly OperationRecord[],
    message: string,
  ): void;
}

function collectFindings(): Findings {
  const violations: Violation[] = [];
  return {
    violations,
    add(invariant, at, key, operations, message) {
      violations.push({ invariant, at, key, operations: operations.map(operationId), message });
    },
  };
}

export function checkHistory(history: History): Verdict {
  const findings = collectFindings();
  const { operations } = history;
  const byKey = groupByKey(operations);
  const double = { holds: 0, micros: 0 };
  let tokenRegressions = 0;
  for (const [key, ofKey] of byKey) {
    checkExclusion(history, key, ofKey, double, findings);
    checkReleases(history, key, ofKey, findings);
    tokenRegressions += checkTokens(key, ofKey, findings);
  }
  checkKernelLocks(history, findings);
  const writes = checkRegister(history, findings);
  const notice = checkNotices(history, findings);
  checkProgress(history, byKey, findings);
  if (history.leftovers !== null && history.leftovers > 0)
    findings.add(
      "remains",
      history.endedAt,
      null,
      [],
      `${history.leftovers} claims were left in the store after two leases`,
    );

  const effective = history.faults.filter((fault) => tookEffect(fault, history));
  const waits = waitTimes(operations);
  const figures: Figures = {
    requests: operations.length,
    holds: operations.filter(({ grantedAt }) => grantedAt !== null).length,
    sections: history.register.filter(({ event }) => event === "enter").length,
    contended: countContended(byKey),
    faults: countBy(history.faults.map(({ fault }) => fault)),
    effectiveFaults: effective.length,
    doubleHolds: double.holds,
    doubleHoldMs: double.micros / MICROS,
    tokenRegressions,
    ...writes,
    ...notice,
    grantsWithoutLease: operations.filter(({ wasDead }) => wasDead).length,
    longestWaitMs: waits.at(-1) ?? 0,
    medianWaitMs: median(waits) ?? 0,
    inversions: countInversions(byKey),
    longestIdleMs: longestIdle(history, byKey),
    afterCrashMs: waitsAfterCrashes(history, byKey),
    bystanderMedianMs: median(bystanderTimes(history)),
    bystanderLongestMs: bystanderTimes(history).at(-1) ?? null,
    leftovers: history.leftovers,
  };
  const reasons = findReasons(history, figures);
  const violations = findings.violations.sort((a, b) => a.at - b.at);
  const verdict = violations.length > 0 ? "violated" : reasons.length > 0 ? "unknown" : "ok";
  return { verdict, violations, reasons, figures };
}

function findReasons(history: History, figures: Figures): string[] {
  const reasons: string[] = [];
  if (figures.effectiveFaults === 0)
    reasons.push(
      history.faults.length === 0
        ? "no fault was injected"
        : "no fault took effect: none struck a process that held or waited",
    );
  if (figures.contended < LEAST_CONTENDED)
    reasons.push(
      `only ${figures.contended} locks were granted while another process held or waited: at least ${LEAST_CONTENDED} are needed`,
    );
  if (history.healedAt === null || history.stoppingAt === null) reasons.push("the run was cut short");
  return reasons;
}

function groupByKey(operations: readonly OperationRecord[]): Map<string, OperationRecord[]> {
  const byKey = new Map<string, OperationRecord[]>();
  for (const operation of operations) {
    for (const key of operation.keys) {
      const ofKey = byKey.get(key);
      if (ofKey === undefined) byKey.set(key, [operation]);
      else ofKey.push(operation);
    }
  }
  return byKey;
}

/** Sweeps over the beliefs of a key in the order of their beginnings. */
function checkExclusion(
  { workers }: History,
  key: string,
  ofKey: readonly OperationRecord[],
  double: { holds: number; micros: number },
  findings: Findings,
): void {
  const beliefs = ofKey
    .flatMap((record) => {
      const belief = beliefOf(record, workers);
      return belief === null || belief.to <= belief.from ? [] : [{ record, ...belief }];
    })
    .sort((a, b) => a.from - b.from);
  let active: (typeof beliefs)[number][] = [];
  for (const belief of beliefs) {
    active = active.filter(({ to }) => to > belief.from);
    const permits = active.reduce((sum, { record }) => sum + record.permits, belief.record.permits);
    const { limit } = belief.record;
    const rivals = active.filter(
      ({ record }) => !isCompatible(record, belief.record) || (limit !== null && permits > limit),
    );
    if (rivals.length > 0) {
      const rival = rivals.reduce((longest, one) => (one.to > longest.to ? one : longest));
      const micros = Math.min(rival.to, belief.to) - belief.from;
      double.holds++;
      double.micros += micros;
      findings.add(
        "exclusion",
        belief.from,
        key,
        [rival.record, belief.record],
        `two processes held it at once for ${formatMs(micros)}`,
      );
    }
    active.push(belief);
  }
}

function checkReleases({ workers }: History, key: string, ofKey: readonly OperationRecord[], findings: Findings): void {
  // the latest beginning of an exclusive belief so far, in the order of the grants
  const exclusive = ofKey.filter(({ permits, limit, grantedAt }) => permits === limit && grantedAt !== null);
  for (const [index, record] of exclusive.entries()) {
    const next = exclusive[index + 1];
    if (next === undefined || record.wasHeld !== true || record.releasingAt === null) continue;
    const belief = beliefOf(next, workers);
    const comesLater = next.tokens === null || record.tokens === null || tokenOf(next, key) > tokenOf(record, key);
    if (belief !== null && comesLater && belief.from < record.releasingAt)
      findings.add(
        "release",
        record.releasingAt,
        key,
        [record, next],
        "a release said that the lock was held, after another process had held it",
      );
  }
}

function tokenOf(record: OperationRecord, key: string): bigint {
  return record.tokens?.get(key) ?? -1n;
}

function checkTokens(key: string, ofKey: readonly OperationRecord[], findings: Findings): number {
  const granted = ofKey.filter((record) => record.grantedAt !== null && record.tokens !== null);
  const invoked = granted.toSorted((a, b) => a.invokedAt - b.invokedAt);
  const seen = new Map<bigint, OperationRecord>();
  let count = 0;
  let finished = 0;
  let highest: OperationRecord | null = null;
  for (const record of invoked) {
    for (; (granted[finished]?.grantedAt ?? Number.POSITIVE_INFINITY) < record.invokedAt; finished++) {
      const earlier = granted[finished] as OperationRecord;
      if (highest === null || tokenOf(earlier, key) > tokenOf(highest, key)) highest = earlier;
    }
    const token = tokenOf(record, key);
    const other = seen.get(token);
    const lower = highest !== null && token <= tokenOf(highest, key) ? highest : null;
    seen.set(token, record);
    if (other === undefined && lower === null) continue;
    count++;
    const message =
      other !== undefined
        ? `the token ${token} was granted twice`
        : `the token ${token} is not above ${lower && tokenOf(lower, key)}, which was granted before this lock was asked for`;
    findings.add("tokens", record.grantedAt as number, key, [other ?? (lower as OperationRecord), record], message);
  }
  return count;
}

function checkKernelLocks(history: History, findings: Findings): void {
  const { kernel, operations, workers } = history;
  const byId = new Map(operations.map((record) => [operationId(record), record]));
  const locked = new Map<string, Set<OperationRecord>>();
  for (const event of kernel) {
    const record = byId.get(operationId(event));
    if (record === undefined) continue;
    const holders = locked.get(event.key) ?? new Set();
    locked.set(event.key, holders);
    if (event.event === "unlocked") holders.delete(record);
    else if (!event.taken) holders.add(record);
    else {
      // one that does not believe any more has yet to notice: it was stopped, or its process is busy
      const isExplained = [...holders].some((holder) => event.at >= (beliefOf(holder, workers)?.to ?? 0));
      const wasKilled = [...workers.values()].some(
        ({ endedAt }) => endedAt !== null && Math.abs(event.at - endedAt) < KERNEL_LAG_MS * MICROS,
      );
      if (!isExplained && !wasKilled)
        findings.add(
          "exclusion",
          event.at,
          event.key,
          [...holders, record],
          "the kernel's lock on the key's file was still taken",
        );
    }
  }
}

interface Writes {
  readonly staleWritesRefused: number;
  readonly staleWritesAccepted: number;
  readonly staleWritesUnfenced: number;
}

function checkRegister(history: History, findings: Findings): Writes {
  const byId = new Map(history.operations.map((record) => [operationId(record), record]));
  const lastEntered = new Map<string, string>();
  const lastAccepted = new Map<string, string>();
  let staleWritesRefused = 0;
  let staleWritesAccepted = 0;
  let staleWritesUnfenced = 0;
  for (const event of history.register) {
    const id = operationId(event);
    const record = byId.get(id);
    if (record === undefined) continue;
    if (event.event === "enter") {
      lastEntered.set(event.key, id);
      if (event.accepted) lastAccepted.set(event.key, id);
    } else {
      if (lastEntered.get(event.key) !== id) staleWritesUnfenced++;
      if (!event.accepted) staleWritesRefused++;
      else if (event.token !== null && lastAccepted.get(event.key) !== id) {
        staleWritesAccepted++;
        const other = byId.get(lastAccepted.get(event.key) ?? "");
        findings.add(
          "register",
          event.at,
          event.key,
          [...(other ? [other] : []), record],
          "the register accepted a late write with a token",
        );
      }
    }
    if (!event.accepted && wasRightful(event, record, history))
      findings.add(
        "register",
        event.at,
        event.key,
        [record],
        "the register refused a holder, whose token was not the highest",
      );
  }
  return { staleWritesRefused, staleWritesAccepted, staleWritesUnfenced };
}

function wasRightful({ at }: RegisterEvent, record: OperationRecord, { workers }: History): boolean {
  const belief = beliefOf(record, workers);
  return belief !== null && at >= belief.from && at < belief.to;
}

function checkNotices(history: History, findings: Findings): { losses: number; latestNoticeMs: number } {
  let losses = 0;
  let latestNoticeMs = 0;
  for (const record of history.operations) {
    const { saidUntil, lostAt, releasingAt } = record;
    if (lostAt !== null) losses++;
    if (saidUntil === null || (releasingAt !== null && releasingAt <= saidUntil)) continue;
    const lateMs = ((lostAt ?? releasingAt ?? history.endedAt) - saidUntil) / MICROS;
    // a process that was stopped or busy notices when it runs again
    if (wasStruck(record.worker, saidUntil, history)) continue;
    if (lostAt !== null) {
      latestNoticeMs = Math.max(latestNoticeMs, lateMs);
      continue;
    }
    const worker = history.workers.get(record.worker);
    const wasRunning = worker !== undefined && worker.lastAt > saidUntil + LATE_NOTICE_MS * MICROS;
    if (wasRunning && lateMs > LATE_NOTICE_MS)
      findings.add(
        "notice",
        saidUntil,
        record.keys[0] ?? null,
        [record],
        `its holder was not told that the lock was lost, for ${lateMs.toFixed(0)} ms`,
      );
  }
  return { losses, latestNoticeMs };
}

/** Whether a fault struck this worker around a moment, or until shortly before. */
function wasStruck(worker: number, at: number, { faults }: History): boolean {
  return faults.some(
    ({ beganAt, endedAt, workers, fault }) =>
      fault !== "latency" &&
      workers?.includes(worker) === true &&
      beganAt <= at + LATE_NOTICE_MS * MICROS &&
      endedAt >= at - LATE_NOTICE_MS * MICROS,
  );
}

function checkProgress(
  history: History,
  byKey: ReadonlyMap<string, readonly OperationRecord[]>,
  findings: Findings,
): void {
  const { operations, workers, healedAt, stoppingAt, endedAt } = history;
  for (const record of operations) {
    const worker = workers.get(record.worker);
    if (worker === undefined || worker.wasKilled) continue;
    const answeredAt = record.grantedAt ?? record.endedAt;
    const lateMs = ((answeredAt ?? endedAt) - record.invokedAt) / MICROS - record.waitMs;
    if (lateMs > LATE_REQUEST_MS && !wasStruck(record.worker, record.invokedAt + record.waitMs * MICROS, history))
      findings.add(
        "progress",
        record.invokedAt,
        record.keys[0] ?? null,
        [record],
        `a request to wait ${record.waitMs} ms ${answeredAt === null ? "was not answered" : "was answered"} ${lateMs.toFixed(0)} ms later`,
      );
  }
  for (const { worker, reason, endedAt: at, wasKilled } of workers.values())
    if (!wasKilled && reason !== "")
      findings.add("progress", at ?? endedAt, null, [], `worker ${worker} ended: ${reason}`);
  if (healedAt === null || stoppingAt === null) return;
  for (const [key, ofKey] of byKey) {
    const asked = ofKey.filter(({ invokedAt, waitMs }) => waitMs > 0 && invokedAt > healedAt && invokedAt < stoppingAt);
    if (asked.length > 0 && !ofKey.some(({ grantedAt }) => grantedAt !== null && grantedAt > healedAt))
      findings.add(
        "progress",
        healedAt,
        key,
        asked.slice(0, 2),
        `none of ${asked.length} requests was granted after all faults were repaired`,
      );
  }
}

/** A fault tells something if an operation of a process that it strikes was under way. */
function tookEffect({ beganAt, endedAt, workers }: FaultRecord, { operations }: History): boolean {
  return operations.some(
    (record) =>
      (workers === null || workers.includes(record.worker)) &&
      record.invokedAt < Math.min(endedAt, beganAt + 1_000 * MICROS) &&
      (record.releasedAt ?? record.endedAt ?? Number.POSITIVE_INFINITY) > beganAt,
  );
}

function countContended(byKey: ReadonlyMap<string, readonly OperationRecord[]>): number {
  const contended = new Set<OperationRecord>();
  for (const ofKey of byKey.values()) {
    let heldUntil = 0;
    let last: OperationRecord | null = null;
    for (const record of ofKey) {
      if (record.grantedAt === null) continue;
      if (last !== null && last.worker !== record.worker && record.invokedAt < heldUntil) contended.add(record);
      const until = record.releasedAt ?? record.lostAt ?? record.saidUntil ?? record.grantedAt;
      if (until >= heldUntil) {
        heldUntil = until;
        last = record;
      }
    }
  }
  return contended.size;
}

function waitTimes(operations: readonly OperationRecord[]): number[] {
  return operations
    .flatMap(({ grantedAt, invokedAt }) => (grantedAt === null ? [] : [(grantedAt - invokedAt) / MICROS]))
    .sort((a, b) => a - b);
}

function bystanderTimes({ bystanders }: History): number[] {
  return bystanders.filter((ms) => ms !== null).sort((a, b) => a - b);
}

/** Two requests that come within this may arrive in the other order. */
const ORDER_MS = 50;

function countInversions(byKey: ReadonlyMap<string, readonly OperationRecord[]>): number {
  let count = 0;
  for (const ofKey of byKey.values()) {
    let latest = 0;
    for (const { kind, grantedAt, invokedAt } of ofKey) {
      if (kind !== "strict" || grantedAt === null) continue;
      if (invokedAt < latest - ORDER_MS * MICROS) count++;
      latest = Math.max(latest, invokedAt);
    }
  }
  return count;
}

/** The longest time in which a key was free although a process waited for it, after the repair and two leases. */
function longestIdle(history: History, byKey: ReadonlyMap<string, readonly OperationRecord[]>): number {
  const { healedAt, header, workers, stoppingAt } = history;
  if (healedAt === null) return 0;
  const from = healedAt + 2 * header.ttlMs * MICROS;
  let longest = 0;
  for (const ofKey of byKey.values()) {
    let heldUntil = from;
    for (const record of ofKey) {
      if (record.grantedAt === null) continue;
      const since = Math.max(heldUntil, record.invokedAt);
      if (record.grantedAt > from && record.grantedAt < (stoppingAt ?? 0))
        longest = Math.max(longest, record.grantedAt - since);
      heldUntil = Math.max(
        heldUntil,
        record.releasedAt ?? record.lostAt ?? beliefOf(record, workers)?.to ?? record.grantedAt,
      );
    }
  }
  return longest / MICROS;
}

/** From the death of a process that held a key to the next grant, where another one waited already. */
function waitsAfterCrashes({ workers }: History, byKey: ReadonlyMap<string, readonly OperationRecord[]>): number[] {
  const waits: number[] = [];
  for (const ofKey of byKey.values()) {
    for (const [index, record] of ofKey.entries()) {
      const worker = workers.get(record.worker);
      if (worker?.wasKilled !== true || worker.endedAt === null || record.permits !== record.limit) continue;
      if (record.grantedAt === null || record.releasingAt !== null || record.lostAt !== null) continue;
      const diedAt = worker.endedAt;
      const next = ofKey.slice(index + 1).find(({ grantedAt }) => grantedAt !== null && grantedAt > diedAt);
      if (next?.grantedAt != null && next.invokedAt < diedAt) waits.push((next.grantedAt - diedAt) / MICROS);
    }
  }
  return waits.sort((a, b) => a - b);
}

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function median(sorted: readonly number[]): number | null {
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}

function formatMs(micros: number): string {
  const ms = micros / MICROS;
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(0)} ms`;
}
