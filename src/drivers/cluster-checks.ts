/** The checks of `holdfast doctor` that the drivers of clusters have in common. */

import type { Check } from "../spi/driver.ts";

interface ClusterTerms {
  /** The name of the check. */
  readonly name: string;
  /** "server". */
  readonly one: string;
  /** "an ensemble". */
  readonly all: string;
  /** "sessions survive a short restart". */
  readonly survival: string;
}

/** How many of the servers vote: from three on, a cluster tolerates the failure of one. */
export function checkVoters(voters: number, { name, one, all, survival }: ClusterTerms): Check {
  const message = voters < 2 ? `a single ${one}` : `${all} of ${voters} voting ${one}s`;
  if (voters > 2) return { status: "ok", name, message };
  return {
    status: "warn",
    name,
    message: voters === 2 ? `${message}, which tolerates no failure` : message,
    hint: `nothing is granted during an outage; ${survival}. Three ${one}s tolerate the failure of one`,
  };
}

/** How long this takes. */
export async function checkTrip(what: string, run: () => Promise<unknown>): Promise<Check> {
  const startedAt = performance.now();
  await run();
  return { status: "ok", name: "trip", message: `${(performance.now() - startedAt).toFixed(2)} ms for ${what}` };
}

/** Without the right to read, the check is "unknown", not failed. @param failure the beginning of its message, before the reason */
export async function checkReadable(name: string, failure: string, check: () => Promise<Check>): Promise<Check> {
  try {
    return await check();
  } catch (error) {
    return { status: "unknown", name, message: `${failure}: ${(error as Error).message}` };
  }
}
