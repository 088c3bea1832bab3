/**
 * The jobs of @nestjs/schedule, for @LockedCron(). That package keeps them by their names in its SchedulerRegistry, a provider whose
 * token is its class. So the class is imported, if the package is installed; an error is reported to who needs it.
 */

import type { CronJob } from "../cron/index.ts";

/** Returns a job by its name. @throws TypeError if the jobs of @nestjs/schedule were not found, and its error for an unknown name */
export type FindCronJob = (name: string) => CronJob;

/** The token of a provider of FindCronJob. */
export const FIND_CRON_JOB: unique symbol = Symbol("holdfast.findCronJob");

interface Registry {
  getCronJob(name: string): CronJob;
}

interface ScheduledJobsModuleDefinition {
  readonly module: typeof ScheduledJobsModule;
  readonly global: true;
  readonly providers: readonly object[];
  readonly exports: readonly symbol[];
}

/** NestJS knows a module by its class. */
class ScheduledJobsModule {}

/** A dynamic module that provides FIND_CRON_JOB. */
export async function importScheduledJobs(): Promise<ScheduledJobsModuleDefinition> {
  let token: object | null = null;
  let problem: unknown;
  try {
    token = (await import("@nestjs/schedule")).SchedulerRegistry;
  } catch (error) {
    problem = error;
  }
  const useFactory = (registry?: Registry): FindCronJob => createFinder(registry, problem);
  // absent in an application without its ScheduleModule
  const inject = token === null ? [] : [{ token, optional: true }];
  return {
    module: ScheduledJobsModule,
    global: true,
    providers: [{ provide: FIND_CRON_JOB, useFactory, inject }],
    exports: [FIND_CRON_JOB],
  };
}

function createFinder(registry: Registry | undefined, cause: unknown): FindCronJob {
  return (name) => {
    if (registry !== undefined) return registry.getCronJob(name);
    const remedy = "import its ScheduleModule, and install it where holdfast finds it, only once";
    throw new TypeError(`@LockedCron() has not found the jobs of @nestjs/schedule: ${remedy}`, { cause });
  };
}
