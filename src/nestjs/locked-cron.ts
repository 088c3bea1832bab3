/** @LockedCron(): a job of @nestjs/schedule that runs once per tick, whatever number of processes has it. */

import type { JobOptions, TickRun } from "../cron/index.ts";
import { parseJobOptions, runTick } from "../cron/job.ts";
import { toTick } from "../cron/tick-source.ts";
import { isObject, requireObject } from "../util/validate.ts";
import { copyIdentity } from "../wrapping/wrap.ts";
import { injectLocks, readLocks, requireLegacyMethod } from "./locked.ts";
import { injectProperty, readMetadataApi } from "./property-injection.ts";
import type { FindCronJob } from "./scheduled-jobs.ts";
import { FIND_CRON_JOB } from "./scheduled-jobs.ts";

/** The options of LockedCron(): those of wrapJob(), and those of the decorator Cron() of @nestjs/schedule, which gets them. */
export interface LockedCronOptions extends JobOptions {
  /** The name of the job, equal in all processes, and the one under which @nestjs/schedule registers it. */
  readonly name: string;
  /** Without it or `utcOffset`, machines with different time zones have different ticks. */
  readonly timeZone?: string | undefined;
  /** In minutes, instead of a time zone. */
  readonly utcOffset?: number | undefined;
  readonly unrefTimeout?: boolean | undefined;
  /** Of this process; `overlap: false` is that of all. */
  readonly waitForCompletion?: boolean | undefined;
  readonly disabled?: boolean | undefined;
  readonly threshold?: number | undefined;
  readonly initialDelay?: number | undefined;
}

/** The property of an instance that gets the jobs. */
const JOBS = Symbol("holdfast.jobs");

/** The metadata by which @nestjs/schedule finds the jobs of its Cron(). */
const SCHEDULER_TYPE = "SCHEDULER_TYPE";
const SCHEDULER_NAME = "SCHEDULER_NAME";
const SCHEDULE_CRON_OPTIONS = "SCHEDULE_CRON_OPTIONS";
const CRON_TYPE = 1;

type JobMethod = (run: TickRun) => unknown;

/**
 * As Cron() of @nestjs/schedule, but of all processes one runs each tick, with the locks of HoldfastModule. The method gets a TickRun.
 * @throws TypeError if an argument is wrong, the method is static, or the compiler does not use `experimentalDecorators`. The method
 *   rejects as the function of wrapJob(); and with TypeError if NestJS has not made the instance
 */
export function LockedCron(
  cronTime: string | Date,
  options: LockedCronOptions,
): <Method extends JobMethod>(
  target: object,
  property: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => TypedPropertyDescriptor<Method> {
  requireObject(options, "LockedCron");
  const { clockSkew, maxDelay, overlap, onSkipped, ...cronOptions } = options;
  const { name } = options;
  const settings = parseJobOptions("LockedCron", name, { clockSkew, maxDelay, overlap, onSkipped });
  return <Method extends JobMethod>(
    target: object,
    property: string | symbol,
    descriptor: TypedPropertyDescriptor<Method>,
  ) => {
    requireLegacyMethod("@LockedCron()", target, property);
    const metadata = readMetadataApi("@LockedCron()");
    injectLocks(target.constructor);
    injectProperty(target.constructor, JOBS, FIND_CRON_JOB, metadata, true);
    const method = descriptor.value as Method;
    const wrapped = copyIdentity(method, async function (this: unknown, run?: unknown) {
      // a late tick may run in the constructor of its job, which is registered right after that
      await Promise.resolve();
      // a program that calls the method itself passes the tick
      const source = isObject(run) && "tick" in run ? run.tick : readFinder(this)(name);
      return runTick(readLocks(this), name, (tickRun) => method.call(this, tickRun), toTick(source), settings);
    });
    metadata.defineMetadata(SCHEDULE_CRON_OPTIONS, { ...cronOptions, cronTime }, wrapped);
    metadata.defineMetadata(SCHEDULER_NAME, name, wrapped);
    metadata.defineMetadata(SCHEDULER_TYPE, CRON_TYPE, wrapped);
    return { ...descriptor, value: wrapped as unknown as Method };
  };
}

/** @throws TypeError where HoldfastModule has given none */
function readFinder(self: unknown): FindCronJob {
  const findCronJob = (self as { readonly [JOBS]?: FindCronJob } | undefined)?.[JOBS];
  if (findCronJob !== undefined) return findCronJob;
  throw new TypeError(
    "this instance has no jobs: the application must import HoldfastModule, or the caller pass { tick: new Date() }",
  );
}
