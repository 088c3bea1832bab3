/** Of the types of @nestjs/schedule, which the project does not install, what scheduled-jobs.ts reads. */

declare module "@nestjs/schedule" {
  /** A class, which is the token of its provider. */
  export const SchedulerRegistry: object;
}
