/** Runs calls of a function under a lock: what wrap() and @locked() have in common. */

import type { Lock } from "../client/lock.ts";
import type { AcquireOptions } from "../client/options.ts";
import { validateAcquireOptions } from "../client/options.ts";
import { LockTimeoutError } from "../errors.ts";
import { validateKey } from "../util/keys.ts";
import { adoptThenable } from "../util/thenable.ts";
import { functionRule, requireValid } from "../util/validate.ts";
import { runWithCurrentLock } from "./current-lock.ts";
import { parseKeyTemplate } from "./key-template.ts";
import { readParameters } from "./parameter-names.ts";

/** What is needed of a Locks. */
export interface LockSource {
  all(keys: readonly string[]): {
    using<T>(options: AcquireOptions, fn: (lock: Lock) => T | PromiseLike<T>): Promise<T>;
  };
}

/** A key of a call: a template such as "order:#{orderId}", or a function. */
export type KeySource<Params extends readonly unknown[]> = string | ((...params: Params) => string);

/** The arguments of the function, never inferred from a key or an option. NoInfer would not be taken for a list of parameters. */
export type ArgsOf<Args extends readonly unknown[]> = [Args][Args extends unknown ? 0 : never];

/** Options that depend on the call, besides those of acquire(). */
export interface CallOptions<Params extends readonly unknown[], Busy> extends Omit<AcquireOptions, "signal"> {
  /** Cancels the wait of all calls, or a function that returns the signal of one. */
  readonly signal?: AbortSignal | ((...params: Params) => AbortSignal | undefined) | undefined;
  /** Does this call need the lock? If not, it runs without. Default: every call does. */
  readonly condition?: ((...params: Params) => boolean) | undefined;
  /** Replaces the call if the lock was not granted within `wait`. Default: LockTimeoutError. */
  readonly onBusy?: ((error: LockTimeoutError, ...params: Params) => Busy | PromiseLike<Busy>) | undefined;
}

/** What differs between functions and methods. */
export interface CallForm {
  /** "wrap", "locked": how messages name what got the options. */
  readonly caller: string;
  /** How messages name the function. */
  readonly subject: string;
  /** What keys and options are functions of. */
  toParams(self: unknown, args: readonly unknown[]): readonly unknown[];
}

type AnyParams = readonly unknown[];

const signalRule = (value: unknown): string | null =>
  value instanceof AbortSignal || typeof value === "function" ? null : "an AbortSignal, or a function that returns one";

const GENERATOR_TAGS: readonly string[] = ["[object GeneratorFunction]", "[object AsyncGeneratorFunction]"];

export class LockedCall {
  readonly #form: CallForm;
  readonly #keys: readonly ((self: unknown, args: AnyParams) => string)[];
  readonly #options: CallOptions<AnyParams, unknown>;
  readonly #acquireOptions: AcquireOptions;

  /** @throws TypeError if a template or an option is wrong */
  constructor(
    keys: readonly KeySource<never>[],
    options: CallOptions<never, unknown>,
    fn: (...args: never[]) => unknown,
    form: CallForm,
  ) {
    if (GENERATOR_TAGS.includes(Object.prototype.toString.call(fn))) {
      throw new TypeError(`${form.subject} must not be a generator: its body would run after the lock was released`);
    }
    const { signal, condition, onBusy, ...acquireOptions } = options as CallOptions<AnyParams, unknown>;
    validateAcquireOptions(form.caller, acquireOptions);
    if (signal !== undefined) requireValid(signal, "signal", signalRule);
    if (condition !== undefined) requireValid(condition, "condition", functionRule);
    if (onBusy !== undefined) requireValid(onBusy, "onBusy", functionRule);
    if (keys.length === 0) throw new TypeError(`${form.caller} needs at least one key`);
    this.#form = form;
    this.#options = { signal, condition, onBusy };
    const keyTemplate = keys.every((key) => typeof key === "string") ? keys.join(", ") : undefined;
    this.#acquireOptions = { keyTemplate, ...acquireOptions };
    this.#keys = keys.map((key) => {
      if (typeof key === "function") {
        const getKey = key as (...params: AnyParams) => string;
        return (self, args) => validateKey(getKey(...form.toParams(self, args)));
      }
      requireValid(key, "key", (value) => (typeof value === "string" ? null : "a string or a function"));
      const resolveKey = parseKeyTemplate(key, { subject: form.subject, parameters: readParameters(fn) });
      return (_self, args) => resolveKey(args);
    });
  }

  /** @throws TypeError if a key is wrong; as Lockable.using() */
  async run<T>(locks: LockSource, self: unknown, args: AnyParams, call: () => T | PromiseLike<T>): Promise<T> {
    const params = this.#form.toParams(self, args);
    const { signal, condition, onBusy } = this.#options;
    if (condition !== undefined && !condition(...params)) return adoptThenable(call());
    const keys = this.#keys.map((getKey) => getKey(self, args));
    const options = {
      ...this.#acquireOptions,
      signal: typeof signal === "function" ? signal(...params) : signal,
    };
    let hasBegun = false;
    try {
      return await locks.all(keys).using(options, (lock) => {
        hasBegun = true;
        return runWithCurrentLock(lock, () => adoptThenable(call()));
      });
    } catch (error) {
      // the function may throw a LockTimeoutError of another lock
      if (onBusy === undefined || hasBegun || !(error instanceof LockTimeoutError)) throw error;
      return (await adoptThenable(onBusy(error, ...params))) as T;
    }
  }
}
