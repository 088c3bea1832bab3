/** What providers ask NestJS for. */

import type { Locks } from "../index.ts";

/** The locks of HoldfastModule: the type of a constructor's parameter, and the token of the provider. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: NestJS finds the provider by the class; the instance is a Locks
export abstract class HoldfastLocks {}
export interface HoldfastLocks extends Locks {}
