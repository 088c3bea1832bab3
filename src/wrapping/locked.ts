/**
 * @locked(): a method that runs under a lock. One function serves the decorators of the standard (TC39) and the older ones
 * of TypeScript (`experimentalDecorators`), which NestJS uses.
 *
 * No key has the name of a class as it is at run time: minifiers and bundlers change it, differently in each build, and then two
 * programs with the same class would not exclude each other, or two classes of one program would share a lock.
 */

import type { Locks } from "../client/locks.ts";
import { validateKey } from "../util/keys.ts";
import { isObject, LOCKS, locksRule, requireObject, requireValid } from "../util/validate.ts";
import type { CallOptions, KeySource } from "./locked-call.ts";
import { LockedCall } from "./locked-call.ts";
import { copyIdentity } from "./wrap.ts";

/** The options of locked(). Functions get the instance and the arguments of the call. */
export type LockedOptions<
  This = unknown,
  Args extends readonly unknown[] = readonly unknown[],
  Busy = unknown,
> = CallOptions<readonly [self: This, ...args: Args], Busy> & LockedKeys<readonly [self: This, ...args: Args]>;

/** Of `key`, `keys` and `name`: one of the first two, or `name`, or `name` beside one of them. */
type LockedKeys<Params extends readonly unknown[]> =
  | {
      /** The key: a template such as "order:#{orderId}", or a function. */
      readonly key: KeySource<Params>;
      readonly keys?: undefined;
      readonly name?: string | undefined;
    }
  | {
      /** Several locks, which are acquired together. */
      readonly keys: readonly KeySource<Params>[];
      readonly key?: undefined;
      readonly name?: string | undefined;
    }
  | {
      /** What the method belongs to, such as "Orders": the key is `lock.<name>.<method>`, and `#<key>` behind it if there is one. */
      readonly name: string;
      readonly key?: undefined;
      readonly keys?: undefined;
    };

/**
 * Decorates methods that return a promise, by the standard or with `experimentalDecorators`. Generic and overloaded methods keep their
 * types. The compiler compares what a decorator returns with the method: so what `onBusy` returns must fit it, and a method
 * that declares to return more than a promise, such as a query builder, is refused.
 */
export interface LockedDecorator<This, Args extends readonly unknown[], Busy> {
  <T extends This, A extends readonly [...Args, ...unknown[]], M extends AnyMethod<T>>(
    method: M & ((this: T, ...args: A) => unknown),
    context: ClassMethodDecoratorContext<T, M>,
  ): M | BusyMethod<Args, Busy>;
  <T extends This, A extends readonly [...Args, ...unknown[]], M extends AnyMethod<T>>(
    target: T,
    property: string | symbol,
    descriptor: TypedPropertyDescriptor<M & ((...args: A) => unknown)>,
  ): Pick<TypedPropertyDescriptor<M | BusyMethod<Args, Busy>>, "value">;
}

// biome-ignore lint/suspicious/noExplicitAny: as the types of decorators have it
type AnyMethod<This> = (this: This, ...args: any) => Promise<unknown>;
/** A call that does not get its lock. It takes what the functions among the options take, and anything behind it. */
// biome-ignore lint/suspicious/noExplicitAny: parameters of any method
type BusyMethod<Args extends readonly unknown[], Busy> = (...args: [...Args, ...any[]]) => Promise<Busy>;

type Method = (...args: never[]) => unknown;

/**
 * Runs a method under a lock. The running method reaches it by currentLock().
 * @param locks the Locks, or a function that returns those of an instance
 * @throws TypeError if an argument is wrong, if no option tells the key, or a reference of a template names no parameter of the
 *   method
 */
export function locked<This = unknown, Args extends readonly unknown[] = readonly [], Busy = never>(
  locks: Locks | ((self: This) => Locks),
  options: LockedOptions<This, Args, Busy>,
): LockedDecorator<This, Args, Busy> {
  requireValid(locks, "locks", (value) =>
    typeof value === "function" || locksRule(value) === null ? null : `${LOCKS}, or a function that returns it`,
  );
  requireObject(options, "locked");
  const getLocks = (typeof locks === "function" ? locks : () => locks) as (self: unknown) => Locks;
  const lockMethod = (method: unknown, property: string | symbol): Method => {
    requireValid(method, `@locked() of ${String(property)}`, (value) =>
      typeof value === "function" ? null : "on a method",
    );
    return createLockedMethod(method as Method, property, getLocks, options as AnyOptions);
  };
  const decorate = (first: unknown, second: unknown, third: unknown): unknown => {
    if (isObject(second)) {
      const { kind, name } = second as unknown as ClassMethodDecoratorContext;
      return lockMethod(kind === "method" ? first : undefined, name);
    }
    const descriptor = Object(third) as PropertyDescriptor;
    return { ...descriptor, value: lockMethod(descriptor.value, second as string | symbol) };
  };
  return decorate as LockedDecorator<This, Args, Busy>;
}

type AnyOptions = LockedOptions<never, never, unknown>;
type AnyKey = KeySource<never>;

function createLockedMethod(
  method: Method,
  property: string | symbol,
  getLocks: (self: unknown) => Locks,
  { key, keys, name, ...callOptions }: AnyOptions,
): Method {
  const call = new LockedCall(toKeys(property, key, keys, name), callOptions, method, {
    caller: "locked",
    subject: `${String(property)}()`,
    toParams: (self, args) => [self, ...args],
  });
  return copyIdentity(method, async function (this: unknown, ...args: readonly unknown[]) {
    const locks = getLocks(this);
    requireValid(locks, `locks of ${String(property)}()`, locksRule);
    return call.run(locks, this, args, () => method.apply(this, args as never));
  });
}

/** @throws TypeError if the options tell no key */
function toKeys(
  property: string | symbol,
  key: AnyKey | undefined,
  keys: readonly AnyKey[] | undefined,
  name: string | undefined,
): readonly AnyKey[] {
  const subject = `@locked() of ${String(property)}`;
  if (keys !== undefined) {
    if (key !== undefined) throw new TypeError(`${subject} takes only one of the options key and keys`);
    requireValid(keys, "keys", (value) => (Array.isArray(value) ? null : "an array"));
  }
  const given = key === undefined ? keys : [key];
  if (name !== undefined) {
    const prefix = `lock.${requireName(name)}.${requirePublicName(property, subject)}`;
    return given === undefined ? [prefix] : given.map((source) => addPrefix(prefix, source));
  }
  if (given !== undefined) return given;
  throw new TypeError(
    `${subject} needs the option key, such as "order:#{orderId}", or name, such as "Orders" for the key "lock.Orders.${String(property)}"`,
  );
}

function addPrefix(prefix: string, source: AnyKey): AnyKey {
  if (typeof source === "function")
    return (...params: never) => `${prefix}#${validateKey(source(...(params as never)))}`;
  // anything else is refused as it is
  return typeof source === "string" && source !== "" ? `${prefix}#${source}` : source;
}

/** "#" begins the rest of the key. */
function requireName(name: unknown): string {
  const text = validateKey(name, "name");
  if (text.includes("#")) throw new TypeError(`name must not contain "#", unlike ${JSON.stringify(text)}`);
  return text;
}

/** Minifiers change the names of private methods, and symbols have none. */
function requirePublicName(property: string | symbol, subject: string): string {
  if (typeof property === "string" && !property.includes("#")) return property;
  throw new TypeError(`${subject} has no name for a key: pass key or keys without name`);
}
