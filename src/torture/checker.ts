/**
 * The verdict on a history, in linear time besides sorting. The register's log and the workers' clocks are compared; what a subject has is
 * tokens, or else only its word.
 *
 * Exclusion     no two incompatible operations certainly believe at one time that they hold a key (operations.ts, beliefOf), and
 *               none finds the kernel's lock on a key's file taken without a good reason.
 * Tokens        if one operation was granted before another one was invoked, its token is lower; so it is if one believed before the
 *               other one did, and they exclude each other. No token is granted twice, and each key of a grant has one.
 * Register      the tokens that the fenced register accepts never fall, and it refuses none that believes.
 * Release       what a release that answers "was held" confirms overlaps no other hold.
 * Notice        a holder that runs is told that its lease has ended.
 * Progress      every request and release ends in time; after the repair each key that is asked for is granted, and none is free for
 *               long while a request waits.
 * Remains       after two leases nothing is left in the store.
 *
 * An operation with an unknown outcome may have been granted at any time: it violates nothing by itself. A run in which no fault took
 * effect, or without contention, tells nothing: the verdict is "unknown".
 */

import { checkExclusion } from "./checks/exclusion.ts";
import type { Violation } from "./checks/findings.ts";
import { Findings } from "./checks/findings.ts";
import { checkKernelLocks } from "./checks/kernel-locks.ts";
import { checkNotices } from "./checks/notice.ts";
import { checkProgress } from "./checks/progress.ts";
import { checkRegister } from "./checks/register.ts";
import { checkTokens } from "./checks/tokens.ts";
import {
  bystanderTimes,
  countContended,
  countEffectiveFaults,
  countOvertaken,
  countStoreGrants,
  waitsAfterCrashes,
  waitTimes,
} from "./figures.ts";
import type { History, OperationRecord } from "./operations.ts";

export type { Invariant, Violation } from "./checks/findings.ts";
export { INVARIANTS } from "./checks/findings.ts";

/** What a run has shown. Times in milliseconds. */
export interface Figures {
  readonly requests: number;
  readonly holds: number;
  /** Grants for which the store was asked; null: the subject has no tokens. */
  readonly storeGrants: number | null;
  readonly sections: number;
  /** Grants of keys that another process held when they were asked for. */
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
  /** Requests in strict order that a later one overtook, although no fault had struck them. */
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

/** Fewer show nothing. */
const LEAST_CONTENDED = 20;

export function checkHistory(history: History): Verdict {
  const findings = new Findings();
  const { operations, leftovers } = history;
  const byKey = groupByKey(operations);
  const doubleHolds = checkExclusion(history, byKey, findings);
  checkKernelLocks(history, byKey, findings);
  const tokenRegressions = checkTokens(history, byKey, findings);
  const lateWrites = checkRegister(history, findings);
  const notices = checkNotices(history, findings);
  const progress = checkProgress(history, byKey, findings);
  if (leftovers !== null && leftovers > 0)
    findings.add("remains", history.endedAt, null, [], `${leftovers} claims were left in the store after two leases`);

  const waits = waitTimes(history);
  const bystander = bystanderTimes(history);
  const figures: Figures = {
    requests: operations.length,
    holds: operations.filter(({ grantedAt }) => grantedAt !== null).length,
    storeGrants: countStoreGrants(byKey),
    sections: history.register.filter(({ event }) => event === "enter").length,
    contended: countContended(byKey),
    faults: countBy(history.faults.map(({ fault }) => fault)),
    effectiveFaults: countEffectiveFaults(history),
    ...doubleHolds,
    tokenRegressions,
    ...lateWrites,
    ...notices,
    grantsWithoutLease: operations.filter(({ wasDead }) => wasDead).length,
    longestWaitMs: waits.at(-1) ?? 0,
    medianWaitMs: median(waits) ?? 0,
    inversions: countOvertaken(history, byKey),
    ...progress,
    afterCrashMs: waitsAfterCrashes(history, byKey),
    bystanderMedianMs: median(bystander),
    bystanderLongestMs: bystander.at(-1) ?? null,
    leftovers,
  };
  const { violations } = findings;
  const reasons = findReasons(history, figures);
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
      `only ${figures.contended} locks were granted that another process held when they were asked for: at least ${LEAST_CONTENDED} are needed`,
    );
  if (!history.isComplete) reasons.push("the run was cut short");
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

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function median(sorted: readonly number[]): number | null {
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}
