/** Whether the simulator and the tests notice a fault. */

import { findFailureLines } from "../../scripts/test/failures.ts";
import { parseSummary } from "../../scripts/test/summary.ts";

/** How a program ended that prints its failures and the closing line of a test run. */
export interface RunResult {
  readonly output: string;
  /** Null: it did not end within its time, and was killed. */
  readonly code: number | null;
}

export type Verdict =
  | { readonly is: "caught"; readonly by: string }
  | { readonly is: "survived" }
  | { readonly is: "unjudged"; readonly why: string };

const SURVIVED: Verdict = { is: "survived" };
const MAX_OUTPUT_CHARS = 4_000;
/** The message of an error may quote much. */
const MAX_REASON_CHARS = 200;

/**
 * A test that fails by a time limit of its own has failed like any other. A program that had to be killed says nothing:
 * a fault that makes the code run in circles looks like a machine that is too busy.
 */
export function judge(program: string, { output, code }: RunResult): Verdict {
  const [failure, reason] = findFailureLines(output).map((line) => line.slice(line.indexOf(" ")).trim());
  if (failure !== undefined) {
    return { is: "caught", by: `${program}: ${failure} (${reason?.slice(0, MAX_REASON_CHARS)})` };
  }
  if (code === null) return { is: "unjudged", why: `${program}: killed, because it did not end in time` };
  // with all tests skipped, since something is not installed, nothing was tested
  if (code === 0 && (parseSummary(output)?.passed ?? 0) > 0) return SURVIVED;
  return { is: "unjudged", why: `${program}: ended with code ${code}\n${output.slice(-MAX_OUTPUT_CHARS)}` };
}

/** One after the other, until one catches the fault. It has survived only if all of them could judge it. */
export function judgeInTurn(judges: readonly (() => Verdict)[]): Verdict {
  let verdict = SURVIVED;
  for (const next of judges) {
    const found = next();
    if (found.is === "caught") return found;
    if (found.is === "unjudged") verdict = found;
  }
  return verdict;
}
