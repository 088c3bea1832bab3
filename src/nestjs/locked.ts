/** @Locked() for classes that NestJS instantiates: the locks of the module come by property injection. */

import type { KeySource, LockedDecorator, LockedOptions, Locks, WrapOptions } from "../index.ts";
import { locked } from "../index.ts";
import { isObject } from "../util/validate.ts";
import { injectProperty, readMetadataApi } from "./property-injection.ts";
import { HoldfastLocks } from "./token.ts";

/** The options of Locked(): those of locked() but for its keys. Functions get the instance and the arguments of the call. */
export interface ModuleLockedOptions<
  This = unknown,
  Args extends readonly unknown[] = readonly unknown[],
  Busy = unknown,
> extends WrapOptions<readonly [self: This, ...args: Args], Busy> {
  /** What the method belongs to, such as "Orders": the key is `lock.<name>.<method>#<key>`. */
  readonly name?: string | undefined;
}

/** The property of an instance that gets the locks. */
const LOCKS = Symbol("holdfast.locks");
/**
 * Runs a method of a provider or controller under a lock of HoldfastModule. The running method reaches it by currentLock().
 * @param key a template such as "order:#{orderId}", a function of the instance and the arguments, or an array of these
 * @throws TypeError if an argument is wrong, a reference of a template names no parameter of the method, the method is static,
 *   or the compiler does not use `experimentalDecorators`. When the method is called: if NestJS has not made the instance
 */
export function Locked<This = unknown, Args extends readonly unknown[] = readonly [], Busy = never>(
  key: KeySource<readonly [self: This, ...args: Args]> | readonly KeySource<readonly [self: This, ...args: Args]>[],
  options: ModuleLockedOptions<This, Args, Busy> = {},
): LockedDecorator<This, Args, Busy> {
  const keys = Array.isArray(key) ? { keys: key } : { key: key as KeySource<readonly [self: This, ...args: Args]> };
  // with `name`, locked() would take it for none
  if (key === undefined || key === null)
    throw new TypeError("key of @Locked() must be a string, a function or an array of these");
  const decorate = locked<This, Args, Busy>(readLocks, { ...options, ...keys } as LockedOptions<
    This,
    Args,
    Busy
  >) as Decorate;
  return ((target: object, property: string | symbol, descriptor: object) => {
    requireLegacyMethod("@Locked()", target, property);
    injectLocks(target.constructor);
    return decorate(target, property, descriptor);
  }) as unknown as LockedDecorator<This, Args, Busy>;
}

type Decorate = (target: object, property: string | symbol, descriptor: object) => unknown;

/** @throws TypeError unless the compiler uses `experimentalDecorators` on a method of instances */
export function requireLegacyMethod(decorator: string, target: unknown, property: unknown): void {
  if (isObject(property)) throw new TypeError(`${decorator} needs experimentalDecorators, as NestJS does`);
  if (typeof target === "function")
    throw new TypeError(`${decorator} of ${String(property)} must not be on a static method`);
}

/** As Inject(HoldfastLocks) on a property. */
export function injectLocks(owner: object): void {
  injectProperty(owner, LOCKS, HoldfastLocks, readMetadataApi("@Locked()"));
}

export function readLocks(self: unknown): Locks {
  const locks = (self as { readonly [LOCKS]?: Locks } | undefined)?.[LOCKS];
  if (locks !== undefined) return locks;
  throw new TypeError("this instance has no locks: NestJS must make it, and gives them to it after its constructor");
}
