/**
 * Exclusion and Release: who held a key at the same time, by what the holders said, and by what their releases answered.
 *
 * A holder certainly believed from its first answer until the end of its belief (operations.ts, beliefOf). If its release answers "was
 * held", then it has held, by the store's word, until it began to release: even if it had said no more, or was told a loss.
 */

import type { History, OperationRecord } from "../operations.ts";
import { beliefOf, isCompatible } from "../operations.ts";
import type { Findings } from "./findings.ts";
import { formatMs, MICROS } from "./findings.ts";

export interface DoubleHolds {
  readonly doubleHolds: number;
  readonly doubleHoldMs: number;
}

interface Span {
  readonly record: OperationRecord;
  readonly from: number;
  /** The end of the belief. */
  readonly to: number;
  /** The end of the hold that its release has confirmed; not before `to`. */
  readonly confirmedTo: number;
}

export function checkExclusion(
  history: History,
  byKey: ReadonlyMap<string, readonly OperationRecord[]>,
  findings: Findings,
): DoubleHolds {
  let doubleHolds = 0;
  let doubleMicros = 0;
  for (const [key, ofKey] of byKey) {
    const spans = spansOf(ofKey, history);
    for (const { span, rivals, sum } of findOverlaps(spans, ({ to }) => to)) {
      const rival = latest(rivals, ({ to }) => to);
      const micros = Math.min(rival.to, span.to) - span.from;
      const { limit } = span.record;
      doubleHolds++;
      doubleMicros += micros;
      const what =
        limit === null || sum <= limit || limit === 1
          ? "two holders had it at once"
          : `${sum} of ${limit} permits were held at once`;
      findings.add("exclusion", span.from, key, [rival.record, span.record], `${what}, for ${formatMs(micros)}`);
    }
    for (const { span, rivals } of findOverlaps(spans, ({ confirmedTo }) => confirmedTo)) {
      // those that believed are double holds
      if (rivals.some(({ to }) => to > span.from)) continue;
      const rival = latest(rivals, ({ confirmedTo }) => confirmedTo);
      findings.add(
        "release",
        rival.record.releasingAt as number,
        key,
        [rival.record, span.record],
        "a release said that the lock was held until then, but another holder had it before",
      );
    }
  }
  return { doubleHolds, doubleHoldMs: doubleMicros / MICROS };
}

/** In the order of their beginnings. */
function spansOf(ofKey: readonly OperationRecord[], { workers }: History): Span[] {
  return ofKey
    .flatMap((record): Span[] => {
      const belief = beliefOf(record, workers);
      if (belief === null) return [];
      const { wasHeld, releasingAt } = record;
      const confirmedTo = wasHeld === true && releasingAt !== null ? Math.max(releasingAt, belief.to) : belief.to;
      return [{ record, ...belief, confirmedTo }];
    })
    .sort((a, b) => a.from - b.from);
}

interface Overlap {
  readonly span: Span;
  /** Began earlier, had not ended, and may not be held beside this one. */
  readonly rivals: readonly [Span, ...Span[]];
  /** All permits that are held when it begins. */
  readonly sum: number;
}

function* findOverlaps(spans: readonly Span[], endOf: (span: Span) => number): Generator<Overlap> {
  let active: Span[] = [];
  for (const span of spans) {
    active = active.filter((one) => endOf(one) > span.from);
    const { record } = span;
    const sum = active.reduce((permits, one) => permits + one.record.permits, record.permits);
    const isOverLimit = record.limit !== null && sum > record.limit;
    const rivals = active.filter((one) => isOverLimit || !isCompatible(one.record, record));
    if (rivals.length > 0) yield { span, rivals: rivals as [Span, ...Span[]], sum };
    active.push(span);
  }
}

function latest(spans: readonly [Span, ...Span[]], endOf: (span: Span) => number): Span {
  return spans.reduce((last, one) => (endOf(one) > endOf(last) ? one : last));
}
