/**
 * Tokens: every grant has a token that is higher than those of all earlier grants of its key. Which grant was earlier is certain if it was
 * told before the other one was asked for, or if its holder believed before the other one did, and both exclude each other: then the
 * store granted them one after the other. Grants that may be held together have no order before that.
 */

import type { History, OperationRecord } from "../operations.ts";
import { beliefOf, isExclusive } from "../operations.ts";
import type { Findings } from "./findings.ts";

/** From when to when something happened that certainly was in this order in the store, too. */
interface Event {
  readonly record: OperationRecord;
  readonly token: bigint;
  readonly from: number;
  readonly to: number;
}

/** How many grants had a token that did not rise. */
export function checkTokens(
  { workers }: History,
  byKey: ReadonlyMap<string, readonly OperationRecord[]>,
  findings: Findings,
): number {
  let count = 0;
  for (const [key, ofKey] of byKey) {
    const report = (record: OperationRecord, others: readonly OperationRecord[], message: string): void => {
      count++;
      findings.add("tokens", record.grantedAt as number, key, [...others, record], message);
    };
    const granted: Event[] = [];
    const beliefs: Event[] = [];
    const holders = new Map<bigint, OperationRecord>();
    for (const record of ofKey) {
      if (record.grantedAt === null || record.tokens === null) continue;
      const token = record.tokens.get(key);
      if (token === undefined) {
        report(record, [], "the lock was granted without a token of this key");
        continue;
      }
      const other = holders.get(token);
      if (other !== undefined) {
        report(record, [other], `the token ${token} was granted twice`);
        continue;
      }
      holders.set(token, record);
      granted.push({ record, token, from: record.invokedAt, to: record.grantedAt });
      const belief = beliefOf(record, workers);
      if (belief !== null) beliefs.push({ record, token, ...belief });
    }
    const reported = new Set<OperationRecord>();
    const reportLower = (late: Event, early: Event, why: string): void => {
      if (reported.has(late.record)) return;
      reported.add(late.record);
      report(late.record, [early.record], `the token ${late.token} is lower than ${early.token}, which ${why}`);
    };
    for (const [late, early] of findLower(granted, granted))
      reportLower(late, early, "was granted before this lock was asked for");
    const exclusive = beliefs.filter(({ record }) => isExclusive(record));
    const shared = beliefs.filter(({ record }) => !isExclusive(record));
    for (const [early, late] of [
      [exclusive, exclusive],
      [exclusive, shared],
      [shared, exclusive],
    ] as const)
      for (const [lower, higher] of findLower(late, early))
        reportLower(lower, higher, "a holder had before this one had the lock");
  }
  return count;
}

/** Those of `late` with a token below that of one of `early`, which had ended before they began. */
function* findLower(late: readonly Event[], early: readonly Event[]): Generator<readonly [Event, Event]> {
  const byEnd = early.toSorted((a, b) => a.to - b.to);
  let ended = 0;
  let highest: Event | null = null;
  for (const event of late.toSorted((a, b) => a.from - b.from)) {
    for (let one = byEnd[ended]; one !== undefined && one.to < event.from; one = byEnd[++ended])
      if (highest === null || one.token > highest.token) highest = one;
    if (highest !== null && event.token < highest.token) yield [event, highest];
  }
}
