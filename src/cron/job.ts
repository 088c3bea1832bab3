/** wrapJob(): a job that runs once per tick, for schedulers that call a function. */

import type { Lock } from "../client/lock.ts";
import type { Locks } from "../client/locks.ts";
import { describeValue } from "../util/duration.ts";
import { adoptThenable } from "../util/thenable.ts";
import { functionRule, isObject, requireValid, validateOptions } from "../util/validate.ts";
import type { TickOptions, TickSettings } from "./tick.ts";
import { claimTick, jobKey, parseTickOptions, requireLocks, TICK_RULES, toNearestTick } from "./tick.ts";

/** A tick that this process did not run. */
export interface SkippedTick {
  /** The name of the job. */
  readonly name: string;
  /** The time of the tick, a whole second. */
  readonly tick: Date;
  /**
   * "taken": another process runs it, or has run it. "late": this process came later than `maxDelay`. "overlap": an earlier tick
   * still runs; no process runs this one.
   */
  readonly reason: "taken" | "late" | "overlap";
}

/** The options of wrapJob(). */
export interface JobOptions extends TickOptions {
  /** Called when this process does not run a tick. The call waits for its promise, and rejects with what it throws. */
  readonly onSkipped?: ((skipped: SkippedTick) => unknown) | undefined;
}

/** What a job is told about the tick it runs for. */
export interface TickRun {
  /** The time of the tick, a whole second, not the time at which this process came. */
  readonly tick: Date;
  /**
   * With `overlap: false`, the lock on the key `job:<name>` that the job holds: its token rises from tick to tick, and its signal
   * is aborted if the lock is lost, so that the next tick may run. Otherwise null.
   */
  readonly lock: Lock | null;
}

/** What runs at each tick. */
export type Job<Result> = (run: TickRun) => Result | PromiseLike<Result>;

/** What croner passes to its function: a `Cron`, as far as wrapJob() reads it. */
export interface CronerJob {
  /** When the run has begun. */
  currentRun(): Date | null;
  /** The time of a job that runs once. */
  getOnce(): Date | null;
  /** The latest ticks before a time. */
  previousRuns(n: number, reference?: Date): readonly Date[];
  readonly options?: { readonly interval?: number | undefined };
}

/**
 * Returns a function for a scheduler in every process: of all calls with the same tick, one runs the job. The tick is the
 * argument of a call: a date, of which the nearest second counts, or what croner passes. The function returns what the job returns, or undefined if it did not run.
 * @throws TypeError naming the wrong argument; the returned function rejects with what the job or `onSkipped` throws; with
 * LockLostError if the lock of `overlap: false` was lost meanwhile; and with the errors of tryAcquire(): then this process does
 * not run the tick
 */
export function wrapJob<Result>(
  locks: Locks,
  name: string,
  job: Job<Result>,
  options: JobOptions = {},
): (tick: Date | CronerJob) => Promise<Result | undefined> {
  requireLocks(locks);
  jobKey(name);
  requireValid(job, "job", functionRule);
  validateOptions("wrapJob", options, { ...TICK_RULES, onSkipped: functionRule });
  const settings = parseTickOptions(options);
  return async (source) => {
    const tick = toTick(source);
    const skip = async (reason: SkippedTick["reason"]): Promise<undefined> => {
      await options.onSkipped?.({ name, tick, reason });
    };
    const claimed = await claimTick(locks, name, tick, settings);
    if (claimed !== "claimed") return skip(claimed);
    const lock = await startJob(locks, name, settings);
    if (lock === "overlap") return skip(lock);
    if (lock === null) return adoptThenable(job({ tick, lock }));
    try {
      const result = await lock.run(() => job({ tick, lock }));
      lock.throwIfLost();
      return result;
    } finally {
      await lock.release();
    }
  };
}

/** Locks the job with `overlap: false`; null if runs may overlap. `maxHold` in milliseconds, default that of the client. */
export async function startJob(
  locks: Locks,
  name: string,
  { overlap }: TickSettings,
  maxHold?: number,
): Promise<Lock | "overlap" | null> {
  if (overlap) return null;
  const key = jobKey(name);
  // a call made by the running job would join its lock
  if (locks.holds(key)) return "overlap";
  return (await locks.tryAcquire(key, { maxHold, cache: 0 })) ?? "overlap";
}

/** @throws TypeError for anything that tells no time */
function toTick(source: unknown): Date {
  const tick = isObject(source) && "previousRuns" in source ? toCronerTick(source as unknown as CronerJob) : source;
  if (tick instanceof Date && !Number.isNaN(tick.getTime())) return toNearestTick(tick);
  throw new TypeError(`tick must be a valid date, or what croner passes to its function, not ${describeValue(source)}`);
}

/**
 * croner tells when the run has begun, by the clock of this machine: up to a second, or a pause, after the tick, and never before it.
 * @throws TypeError if the schedule has an interval: each process then counts from its own start, so they have no common ticks
 */
function toCronerTick(job: CronerJob): Date | undefined {
  if (job.options?.interval)
    throw new TypeError("the schedule must not have the option interval of croner: use a pattern");
  const startedAt = job.currentRun() ?? new Date();
  return job.getOnce() ?? job.previousRuns(1, new Date(startedAt.getTime() + 1))[0];
}
