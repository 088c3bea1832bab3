/** The entry `holdfast/cron`: jobs of schedulers that run once per tick, whatever number of processes has the schedule. */

export { type Job, type JobOptions, type SkippedTick, type TickRun, wrapJob } from "./job.ts";
export { createRunCoordinator, type RunCoordinator, type RunCoordinatorOptions } from "./run-coordinator.ts";
export type { TickOptions } from "./tick.ts";
export type { CronerJob, CronJob, NodeCronRun, TickSource } from "./tick-source.ts";
