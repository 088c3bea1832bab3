/** Locks.wrap(): a function that runs under a lock. */

import { functionRule, requireObject, requireValid } from "../util/validate.ts";
import type { CallOptions, KeySource, LockSource } from "./locked-call.ts";
import { LockedCall } from "./locked-call.ts";

/** The options of wrap(). */
export type WrapOptions<Args extends readonly unknown[] = readonly unknown[], Busy = unknown> = CallOptions<Args, Busy>;

/** @throws TypeError if an argument is wrong, or a reference of a template names no parameter of fn */
export function wrap<This, Args extends readonly unknown[], Result>(
  locks: LockSource,
  key: KeySource<Args> | readonly KeySource<Args>[],
  options: WrapOptions<Args, Result>,
  fn: (this: This, ...args: Args) => Result | PromiseLike<Result>,
): (this: This, ...args: Args) => Promise<Result> {
  requireValid(fn, "fn", functionRule);
  requireObject(options, "wrap");
  const keys = Array.isArray(key) ? (key as readonly KeySource<never>[]) : [key as KeySource<never>];
  const subject = fn.name === "" ? "the function" : `${fn.name}()`;
  const call = new LockedCall(keys, options as CallOptions<never, unknown>, fn as never, {
    caller: "wrap",
    subject,
    toParams: (_self, args) => args,
  });
  const wrapped = function (this: This, ...args: Args): Promise<Result> {
    return call.run(locks, this, args, () => fn.apply(this, args as never));
  };
  return copyIdentity(fn, wrapped);
}

/** Name, length, own properties and metadata: frameworks read them from the function that they find on the class. */
export function copyIdentity<Wrapped extends object>(from: object, to: Wrapped): Wrapped {
  const own = Object.getOwnPropertyDescriptors(from);
  for (const name of Reflect.ownKeys(own)) {
    if (name === "prototype" || name === "arguments" || name === "caller") continue;
    Object.defineProperty(to, name, (own as Record<PropertyKey, PropertyDescriptor>)[name] as PropertyDescriptor);
  }
  const { getOwnMetadataKeys, getOwnMetadata, defineMetadata } = Reflect as MetadataApi;
  for (const key of getOwnMetadataKeys?.(from) ?? []) defineMetadata?.(key, getOwnMetadata?.(key, from), to);
  return to;
}

/** Of the package reflect-metadata, if the program has loaded it. */
interface MetadataApi {
  getOwnMetadataKeys?(target: object): readonly unknown[];
  getOwnMetadata?(key: unknown, target: object): unknown;
  defineMetadata?(key: unknown, value: unknown, target: object): void;
}
