/** A module of NestJS, and its decorators. */

export { Locked, type ModuleLockedOptions } from "./locked.ts";
export { LockedCron, type LockedCronOptions } from "./locked-cron.ts";
export { HoldfastModule, type HoldfastModuleAsyncOptions, type HoldfastModuleOptions } from "./module.ts";
export { HoldfastLocks } from "./token.ts";
