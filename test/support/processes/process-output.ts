import type { UntilOptions } from "../../../src/testing/until.ts";
import { until } from "../../../src/testing/until.ts";
import type { RunningProcess } from "./process-harness.ts";

/**
 * Waits for a fact that the output of a process tells.
 * @throws Error if the process has ended without it
 */
export function waitForOutput<T>(
  running: RunningProcess,
  find: () => T,
  { within, what }: UntilOptions,
): Promise<NonNullable<T>> {
  const condition = async (): Promise<T> => {
    const hasEnded = running.hasEnded();
    // the exit may be reported before the last output has been read
    if (hasEnded) await running.ended;
    const found = find();
    if (hasEnded && !found) throw new Error(`waited in vain for ${what}: the process ended: ${running.err()}`);
    return found;
  };
  return until(condition, { within, what });
}
