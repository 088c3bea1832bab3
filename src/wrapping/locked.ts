/**
 * @locked(): a method that runs under a lock. One function serves the decorators of the standard (TC39) and the older ones
 * of TypeScript (`experimentalDecorators`), which NestJS uses.
 */

import type { Locks } from "../client/locks.ts";
import { validateKey } from "../util/keys.ts";
import { isObject, requireObject, requireValid } from "../util/validate.ts";
import { readCallPosition, registerClassKey } from "./class-keys.ts";
import type { CallOptions, KeySource } from "./locked-call.ts";
import { LockedCall } from "./locked-call.ts";
import { copyIdentity } from "./wrap.ts";

/** The options of locked(). Functions get the instance and the arguments of the call. */
export interface LockedOptions<This = unknown, Args extends readonly unknown[] = readonly unknown[], Busy = unknown>
  extends CallOptions<readonly [self: This, ...args: Args], Busy> {
  /** The key: a template such as "order:#{orderId}", or a function. Default: `lock.<class>.<method>`. */
  readonly key?: KeySource<readonly [self: This, ...args: Args]> | undefined;
  /** Several locks, which are acquired together. */
  readonly keys?: readonly KeySource<readonly [self: This, ...args: Args]>[] | undefined;
  /** Replaces `<class>.<method>` in the default key. */
  readonly name?: string | undefined;
}

/** Decorates methods that return a promise, by the standard or with `experimentalDecorators`. */
export interface LockedDecorator<This, Args extends readonly unknown[], Busy> {
  <T extends This, A extends readonly [...Args, ...unknown[]], R>(
    method: (this: T, ...args: A) => Promise<R>,
    context: [Busy] extends [R] ? ClassMethodDecoratorContext<T, (this: T, ...args: A) => Promise<R>> : never,
  ): (this: T, ...args: A) => Promise<R>;
  <T extends This, A extends readonly [...Args, ...unknown[]], R>(
    target: T,
    property: string | symbol,
    descriptor: TypedPropertyDescriptor<(...args: A) => Promise<R>> & ([Busy] extends [R] ? unknown : never),
  ): void;
}

type Method = (...args: never[]) => unknown;

interface LockedMethod {
  readonly wrapped: Method;
  /** Registers the default key. @throws TypeError if the class cannot give one. null: the key is another one */
  readonly registerClass: ((self: unknown) => void) | null;
}

/** Returns the name of the class that declares the method; "" if that is uncertain. */
type FindClassName = (self: unknown, wrapped: Method) => string;

type LockMethod = (method: unknown, property: string | symbol, findClassName: FindClassName) => LockedMethod;

/**
 * Runs a method under a lock. The running method reaches it by currentLock().
 * @param locks the Locks, or a function that returns those of an instance
 * @throws TypeError if an argument is wrong, or a reference of a template names no parameter of the method. When an instance
 *   is made, or a method is called for the first time: if the class cannot give it a default key
 */
export function locked<This = unknown, Args extends readonly unknown[] = readonly [], Busy = never>(
  locks: Locks | ((self: This) => Locks),
  options: LockedOptions<This, Args, Busy> = {},
): LockedDecorator<This, Args, Busy> {
  requireValid(locks, "locks", (value) =>
    typeof value === "function" || isLocks(value) ? null : "a Locks, or a function that returns one",
  );
  requireObject(options, "locked");
  const getLocks = (typeof locks === "function" ? locks : () => locks) as (self: unknown) => Locks;
  const position = readCallPosition(locked);
  const lockMethod: LockMethod = (method, property, findClassName) => {
    requireValid(method, `@locked() of ${String(property)}`, (value) =>
      typeof value === "function" ? null : "on a method",
    );
    return createLockedMethod(method as Method, property, getLocks, options as AnyOptions, findClassName, position);
  };
  return ((first: unknown, second: unknown, third: unknown) =>
    isObject(second)
      ? decorateStandard(first, second as unknown as ClassMethodDecoratorContext, lockMethod)
      : decorateLegacy(first, second as string | symbol, third, lockMethod)) as LockedDecorator<This, Args, Busy>;
}

function decorateStandard(method: unknown, context: ClassMethodDecoratorContext, lockMethod: LockMethod): Method {
  const { kind, name, static: isStatic } = context;
  const findClassName: FindClassName = (self, wrapped) => findOwnerName(self, name, wrapped, isStatic);
  const { wrapped, registerClass } = lockMethod(kind === "method" ? method : undefined, name, findClassName);
  if (registerClass !== null) {
    context.addInitializer(function (this: unknown) {
      registerClass(this);
    });
  }
  return wrapped;
}

function decorateLegacy(
  target: unknown,
  property: string | symbol,
  descriptor: unknown,
  lockMethod: LockMethod,
): object {
  const owner = typeof target === "function" ? target : Object(target).constructor;
  const { value } = Object(descriptor) as PropertyDescriptor;
  return { ...Object(descriptor), value: lockMethod(value, property, () => owner.name).wrapped };
}

type AnyOptions = LockedOptions<never, never, unknown>;

function createLockedMethod(
  method: Method,
  property: string | symbol,
  getLocks: (self: unknown) => Locks,
  { key, keys, name, ...callOptions }: AnyOptions,
  findClassName: FindClassName,
  position: string,
): LockedMethod {
  if ([key, keys, name].filter((option) => option !== undefined).length > 1) {
    throw new TypeError("@locked() takes only one of the options key, keys and name");
  }
  let classKey: string | null = null;
  const readClassKey = (self: unknown): string => {
    classKey ??= registerClassKey(findClassName(self, wrapped), String(property), position);
    return classKey;
  };
  const hasClassKey = key === undefined && keys === undefined && name === undefined;
  const nameKey = name === undefined ? readClassKey : (): string => `lock.${name}`;
  if (name !== undefined) validateKey(name, "name");
  const call = new LockedCall(
    (keys ?? [key ?? nameKey]) as readonly KeySource<never>[],
    callOptions as CallOptions<never, unknown>,
    method,
    { caller: "locked", subject: `${String(property)}()`, toParams: (self, args) => [self, ...args] },
  );
  const wrapped: Method = copyIdentity(method, async function (this: unknown, ...args: readonly unknown[]) {
    const locks = getLocks(this);
    requireValid(locks, `locks of ${String(property)}()`, (value) => (isLocks(value) ? null : "a Locks"));
    return call.run(locks, this, args, () => method.apply(this, args as never));
  });
  return { wrapped, registerClass: hasClassKey ? readClassKey : null };
}

function isLocks(value: unknown): boolean {
  return isObject(value) && typeof value.all === "function";
}

/** Of an instance, or of a class for a static method. Another decorator may have replaced the method by its own function. */
function findOwnerName(self: unknown, property: string | symbol, wrapped: Method, isStatic: boolean): string {
  const toName = (owner: object): string => (isStatic ? (owner as { name: string }) : owner.constructor).name;
  const owners: object[] = [];
  for (let object = Object(self) as object | null; object !== null; object = Object.getPrototypeOf(object)) {
    const value: unknown = Object.getOwnPropertyDescriptor(object, property)?.value;
    if (value === wrapped) return toName(object);
    if (value !== undefined) owners.push(object);
  }
  // two candidates, or a private method, which no object shows
  return owners.length === 1 ? toName(owners[0] as object) : "";
}
