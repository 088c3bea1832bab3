/** A module of NestJS, and its decorator. */

export { Locked, type ModuleLockedOptions } from "./locked.ts";
export { HoldfastModule, type HoldfastModuleAsyncOptions, type HoldfastModuleOptions } from "./module.ts";
export { HoldfastLocks } from "./token.ts";
