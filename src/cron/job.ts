/** wrapJob(): a job that runs once per tick, for schedulers that call a function. */

import type { Lock } from "../client/lock.ts";
import type { Locks } from "../client/locks.ts";
import { adoptThenable } from "../util/thenable.ts";
import { functionRule, requireValid, validateOptions } from "../util/validate.ts";
import type { TickOptions, TickSettings } from "./tick.ts";
import { claimTick, jobKey, parseTickOptions, requireLocks, TICK_RULES } from "./tick.ts";
import type { TickSource } from "./tick-source.ts";
import { toTick } from "./tick-source.ts";

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

/**
 * Returns a function for a scheduler in every process: of all calls with the same tick, one runs the job. The tick is the argument of a
 * call: a date, of which the nearest second counts, or what croner or node-cron pass. cron passes none, and has its job as `this`. The function
 * returns what the job returns, or undefined if it did not run.
 * @throws TypeError naming the wrong argument; the returned function rejects with what the job or `onSkipped` throws; with
 * LockLostError if the lock of `overlap: false` was lost meanwhile; and with the errors of tryAcquire(): then this process does
 * not run the tick
 */
export function wrapJob<Result>(
  locks: Locks,
  name: string,
  job: Job<Result>,
  options: JobOptions = {},
): (this: unknown, tick: TickSource) => Promise<Result | undefined> {
  requireLocks(locks);
  requireValid(job, "job", functionRule);
  const settings = parseJobOptions("wrapJob", name, options);
  return async function (this: unknown, source) {
    // cron passes nothing, or a function to be called at the end
    const tick = toTick(source === undefined || typeof source === "function" ? this : source);
    return runTick(locks, name, job, tick, settings);
  };
}

/** JobOptions with defaults. */
export interface JobSettings extends TickSettings {
  readonly onSkipped: JobOptions["onSkipped"];
}

/** @param subject what messages call the function that got the options. @throws TypeError naming the wrong argument */
export function parseJobOptions(subject: string, name: string, options: JobOptions): JobSettings {
  jobKey(name);
  validateOptions(subject, options, { ...TICK_RULES, onSkipped: functionRule });
  return { ...parseTickOptions(options), onSkipped: options.onSkipped };
}

/** Runs the job if this process gets the tick. */
export async function runTick<Result>(
  locks: Locks,
  name: string,
  job: Job<Result>,
  tick: Date,
  settings: JobSettings,
): Promise<Result | undefined> {
  const skip = async (reason: SkippedTick["reason"]): Promise<undefined> => {
    await settings.onSkipped?.({ name, tick, reason });
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
