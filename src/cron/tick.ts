/**
 * The claim on one tick of a job. All processes with the schedule come with the same tick, each when its own clock shows it; the
 * first one claims the tick, and the claim must last until no other one can still come:
 *
 *   - a process does not claim a tick when its own clock shows more than `tick + maxDelay`;
 *   - two clocks differ by at most `clockSkew`.
 *
 * So no process comes after the claimant's own clock has shown `tick + maxDelay + clockSkew`, and until then the claim is held. It is
 * detached before the job runs: it lasts whether the job takes no time at all, or its process dies, or ends.
 */

import type { Locks } from "../client/locks.ts";
import type { Duration } from "../util/duration.ts";
import { MIN_TTL_MS, parseDuration } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import type { OptionRules } from "../util/validate.ts";
import { booleanRule, locksRule, noProblem, requireValid } from "../util/validate.ts";

/** When a tick may be claimed, and whether its run may overlap the one before. */
export interface TickOptions {
  /**
   * The largest difference between the clocks of two machines. A larger one may let a tick run twice. Default 10 s.
   */
  readonly clockSkew?: Duration | undefined;
  /**
   * How late a process may come with a tick, by its own clock: after a pause of the machine, or of the event loop. A tick that is
   * older is skipped. Default 30 s.
   */
  readonly maxDelay?: Duration | undefined;
  /**
   * May a tick run while an earlier one of the same job still runs, here or in another process? false: it is skipped. Default true.
   */
  readonly overlap?: boolean | undefined;
}

/** TickOptions with defaults, in milliseconds. */
export interface TickSettings {
  readonly clockSkewMs: number;
  readonly maxDelayMs: number;
  readonly overlap: boolean;
}

export const TICK_RULES: OptionRules<TickOptions> = {
  clockSkew: noProblem,
  maxDelay: noProblem,
  overlap: booleanRule,
};

const SECOND_MS = 1_000;
/** Clocks run at rates that differ by less than this. */
const CLOCK_RATE_MARGIN = 1.01;

/** @throws TypeError naming the option; the rules are checked by the caller */
export function parseTickOptions({ clockSkew = "10s", maxDelay = "30s", overlap = true }: TickOptions): TickSettings {
  return {
    clockSkewMs: parseDuration(clockSkew, "clockSkew"),
    maxDelayMs: parseDuration(maxDelay, "maxDelay"),
    overlap,
  };
}

/** @throws TypeError naming the argument */
export function requireLocks(locks: unknown): void {
  requireValid(locks, "locks", locksRule);
}

/**
 * The tick that a time is meant for: the nearest second, since schedules have no smaller unit. A timer may fire a millisecond early, and
 * would name the tick before if the time were rounded down: that one has run, so no process would run this one.
 */
export function toNearestTick(time: Date): Date {
  return new Date(Math.round(time.getTime() / SECOND_MS) * SECOND_MS);
}

/** The key of the lock that a running job holds with `overlap: false`. @throws TypeError naming `name` */
export function jobKey(name: string): string {
  return validateKey(`job:${validateKey(name, "name")}`, "name");
}

/**
 * Claims a tick for this process: true to one caller among all processes. "late": this process comes too late with it. "taken":
 * another one has it.
 * @param keepMs the claim lasts at least so long
 * @throws what tryAcquire() and detach() throw; the tick may then be claimed, and no process runs it
 */
export async function claimTick(
  locks: Locks,
  name: string,
  tick: Date,
  { clockSkewMs, maxDelayMs }: TickSettings,
  keepMs = 0,
): Promise<"claimed" | "late" | "taken"> {
  const key = `${jobKey(name)}:${tick.toISOString()}`;
  const isLate = (): boolean => Date.now() > tick.getTime() + maxDelayMs;
  if (isLate()) return "late";
  const untilLastOneMs = (tick.getTime() + maxDelayMs + clockSkewMs - Date.now()) * CLOCK_RATE_MARGIN;
  const ttl = Math.ceil(Math.max(untilLastOneMs, keepMs, MIN_TTL_MS));
  const lock = await locks.tryAcquire(key, {
    ttl,
    maxHold: Number.POSITIVE_INFINITY,
    cache: 0, // a tick that this process does not run must be free for others
    keyTemplate: `${jobKey(name)}:{tick}`,
  });
  if (lock === null) return "taken";
  // the store may have granted it when the claim of another process had just expired
  if (isLate()) {
    await lock.release();
    return "late";
  }
  try {
    await lock.detach({ ttl });
  } catch (error) {
    // on a store without leases, where the lock would be held as long as this process lives
    await lock.release();
    throw error;
  }
  return "claimed";
}
