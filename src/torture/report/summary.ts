/** summary.json: the result of a run for programs. docs/reference/torture-history.md describes it. */

import type { Figures, Verdict, Violation } from "../checker.ts";
import { hideSecrets } from "../hide-secrets.ts";
import type { History } from "../operations.ts";
import { formatSentence } from "./text.ts";

const SUMMARY_FORMAT = 1;

/** How a run is repeated. */
export interface RepeatCommand {
  /** For a shell. */
  readonly command: string;
  /** What must be changed in it before it can be used; null: nothing. */
  readonly note: string | null;
}

export interface Summary {
  readonly format: typeof SUMMARY_FORMAT;
  readonly verdict: Verdict["verdict"];
  /** For people. */
  readonly sentence: string;
  readonly command: string;
  readonly commandNote: string | null;
  readonly seed: number;
  readonly subject: string;
  readonly store: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly ttlMs: number;
  readonly workers: number;
  readonly seconds: number;
  readonly faults: readonly string[];
  /** Faults, and kinds of operations, with the reason why they were not tested. */
  readonly notTested: Readonly<Record<string, string>>;
  /** Why the verdict is unknown. */
  readonly reasons: readonly string[];
  readonly violations: readonly Violation[];
  readonly figures: Figures;
}

/** @param untestedFaults with the reasons */
export function createSummary(
  history: History,
  verdict: Verdict,
  untestedFaults: Readonly<Record<string, string>>,
  repeat: RepeatCommand,
): Summary {
  const { seed, subject, store, versions, ttlMs, workers, seconds, faults } = history.header;
  const summary: Summary = {
    format: SUMMARY_FORMAT,
    verdict: verdict.verdict,
    sentence: formatSentence(history, verdict),
    command: repeat.command,
    commandNote: repeat.note,
    ...{ seed, subject, store, versions, ttlMs, workers, seconds, faults },
    notTested: { ...untestedFaults, ...Object.fromEntries(history.unsupported) },
    reasons: verdict.reasons,
    violations: verdict.violations,
    figures: verdict.figures,
  };
  return hideInside(summary);
}

/** The same value with all its texts without secrets. */
function hideInside<T>(value: T): T {
  return JSON.parse(JSON.stringify(value, (_, part) => (typeof part === "string" ? hideSecrets(part) : part))) as T;
}
