/** createRunCoordinator(): ticks of node-cron, whose tasks with `distributed: true` ask a coordinator before each run. */

import type { Lock } from "../client/lock.ts";
import type { Locks } from "../client/locks.ts";
import type { Duration } from "../util/duration.ts";
import { describeValue, parseDuration } from "../util/duration.ts";
import { noProblem, validateOptions } from "../util/validate.ts";
import { startJob } from "./job.ts";
import type { TickOptions } from "./tick.ts";
import { claimTick, parseTickOptions, requireLocks, TICK_RULES, toNearestTick } from "./tick.ts";

/** The options of createRunCoordinator(). */
export interface RunCoordinatorOptions extends TickOptions {
  /**
   * With `overlap: false`: this time and a lease after its begin, a run does not keep others out any more. node-cron does not report
   * the end of every run: not of one whose background process has died. Default 1 h.
   */
  readonly maxHold?: Duration | undefined;
}

/** What node-cron takes as `runCoordinator`. */
export interface RunCoordinator {
  /**
   * May this process run the tick?
   * @param key the name of the task and the time of the tick, as node-cron joins them
   * @param ttlMs the task's `distributedLease`: the claim on the tick lasts at least so long
   * @throws TypeError if the task has no name; the errors of tryAcquire(): node-cron then skips the tick
   */
  shouldRun(key: string, ttlMs: number): Promise<boolean>;
  /** Called when a run of this process has ended. */
  onComplete(key: string): Promise<void>;
}

const DEFAULT_MAX_HOLD = "1h";
const KEY_PATTERN = /^(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/s;

/** Returns the coordinator for the tasks of this process. @throws TypeError naming the wrong option */
export function createRunCoordinator(locks: Locks, options: RunCoordinatorOptions = {}): RunCoordinator {
  requireLocks(locks);
  validateOptions("createRunCoordinator", options, { ...TICK_RULES, maxHold: noProblem });
  const settings = parseTickOptions(options);
  const maxHoldMs = parseDuration(options.maxHold ?? DEFAULT_MAX_HOLD, "maxHold", 1);
  /** By the keys of the runs that hold them. */
  const jobLocks = new Map<string, Lock>();
  return {
    async shouldRun(key, ttlMs) {
      const [, name, time] = KEY_PATTERN.exec(key) ?? [];
      if (name === undefined || time === undefined)
        throw new TypeError(
          `key must be the task's name and the time of a tick, not ${describeValue(key)}: name the task`,
        );
      if ((await claimTick(locks, name, toNearestTick(new Date(time)), settings, ttlMs)) !== "claimed") return false;
      const lock = await startJob(locks, name, settings, maxHoldMs);
      if (lock === "overlap") return false;
      if (lock !== null) jobLocks.set(key, lock);
      return true;
    },
    async onComplete(key) {
      const lock = jobLocks.get(key);
      jobLocks.delete(key);
      await lock?.release();
    },
  };
}
