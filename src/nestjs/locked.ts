/** @Locked() for classes that NestJS instantiates: the locks of the module come by property injection. */

import type { KeySource, LockedDecorator, LockedOptions, Locks, WrapOptions } from "../index.ts";
import { locked } from "../index.ts";
import { isObject } from "../util/validate.ts";
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
/** The metadata in which NestJS keeps what its Inject() says about the properties of a class. */
const INJECTED_PROPERTIES = "self:properties_metadata";

interface InjectedProperty {
  readonly key: string | symbol;
  readonly type: unknown;
}

/** Of the package reflect-metadata, which NestJS needs. */
interface MetadataApi {
  getMetadata?(key: string, target: object): readonly InjectedProperty[] | undefined;
  defineMetadata?(key: string, value: readonly InjectedProperty[], target: object): void;
}

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
    if (isObject(property)) throw new TypeError("@Locked() needs experimentalDecorators, as NestJS does");
    if (typeof target === "function")
      throw new TypeError(`@Locked() of ${String(property)} must not be on a static method`);
    injectLocks(target.constructor);
    return decorate(target, property, descriptor);
  }) as unknown as LockedDecorator<This, Args, Busy>;
}

type Decorate = (target: object, property: string | symbol, descriptor: object) => unknown;

/** As Inject(HoldfastLocks) on a property. A subclass has those of its base class. */
function injectLocks(owner: object): void {
  const { getMetadata, defineMetadata } = Reflect as MetadataApi;
  if (getMetadata === undefined || defineMetadata === undefined) {
    throw new TypeError('@Locked() needs the package reflect-metadata: import "reflect-metadata" first');
  }
  const properties = getMetadata(INJECTED_PROPERTIES, owner) ?? [];
  if (properties.some(({ key }) => key === LOCKS)) return;
  defineMetadata(INJECTED_PROPERTIES, [...properties, { key: LOCKS, type: HoldfastLocks }], owner);
}

function readLocks(self: unknown): Locks {
  const locks = (self as { readonly [LOCKS]?: Locks } | undefined)?.[LOCKS];
  if (locks !== undefined) return locks;
  throw new TypeError("this instance has no locks: NestJS must make it, and gives them to it after its constructor");
}
