/** The three verbs, bound to what is to be locked. */

import type { Acquirer } from "./acquire.ts";
import type { Lock, LockHandle } from "./lock.ts";
import type { AcquireOptions, Settings, TryOptions, Wish } from "./options.ts";
import { wishOf } from "./options.ts";
import type { Target } from "./target.ts";

/** Something that can be locked: a fixed set of holds with three verbs. */
export interface Lockable<Extra = unknown> {
  /**
   * Waits for the lock.
   * @throws TypeError for wrong options; LockTimeoutError after `wait`; the signal's reason on abort; DeadlockError;
   * DriverError if the store could not be asked until the wait was over; FatalDriverError; UnsupportedError; ClosedError
   */
  acquire(options?: AcquireOptions & Extra): Promise<Lock>;
  /** The lock if it is free now, else null; asks once. @throws as acquire(), but never LockTimeoutError */
  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null>;
  /**
   * Acquires, runs fn in an async context in which nested requests join, and releases when fn has settled.
   * @throws what fn throws, always; else LockLostError if the lock was lost on the way; and as acquire()
   */
  using<T>(fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  using<T>(options: AcquireOptions & Extra, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
}

/** What a Lockable needs of its client. */
export interface Shop {
  readonly settings: Settings;
  /** Ready to be asked. @throws ClosedError, DriverError */
  acquirer(): Acquirer | Promise<Acquirer>;
}

/** What is locked: always the same, or made of the call's own options (a semaphore's permits). */
type TargetSource<Extra> = Target | ((options: Extra | undefined) => Target);

/** A Lockable that remembers its target, so that all() can take it. */
export class BoundLockable<Extra> implements Lockable<Extra> {
  readonly #shop: Shop;
  readonly #source: TargetSource<Extra>;
  readonly #extra: string | undefined;

  /** @param extra an option that only the target is made of */
  constructor(shop: Shop, source: TargetSource<Extra>, extra?: string) {
    this.#shop = shop;
    this.#source = source;
    this.#extra = extra;
  }

  target(options?: Extra): Target {
    return typeof this.#source === "function" ? this.#source(options) : this.#source;
  }

  acquire(options?: AcquireOptions & Extra): Promise<Lock> {
    return this.#acquire(options, false) as Promise<Lock>;
  }

  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null> {
    return this.#acquire(options, true);
  }

  async using<T>(
    first: (AcquireOptions & Extra) | ((lock: Lock) => T | Promise<T>),
    second?: (lock: Lock) => T | Promise<T>,
  ): Promise<T> {
    const fn = typeof first === "function" ? (first as (lock: Lock) => T | Promise<T>) : second;
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lock = await this.#acquire(typeof first === "function" ? undefined : first, false);
    return runUnder(lock as LockHandle, fn);
  }

  /** No async function: an uncontended acquire is to cost one promise. */
  #acquire(options: (AcquireOptions & Extra) | undefined, isTry: boolean): Promise<LockHandle | null> {
    try {
      const target = this.target(options);
      const wish = this.#wish(options, isTry);
      const ready = this.#shop.acquirer();
      if (ready instanceof Promise) return ready.then((acquirer) => acquirer.acquire(target, wish, isTry));
      return ready.acquire(target, wish, isTry);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #wish(options: AcquireOptions | undefined, isTry: boolean): Wish {
    const { settings } = this.#shop;
    const wish = options === undefined ? settings : wishOf(options, settings, isTry, this.#extra);
    return isTry ? { ...wish, waitMs: 0 } : wish;
  }
}

/** The body's own error always wins; a loss is told even if the body succeeded. */
async function runUnder<T>(lock: LockHandle, fn: (lock: Lock) => T | Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await lock.run(() => fn(lock));
  } catch (error) {
    await lock.release();
    throw error;
  }
  if (!(await lock.release())) throw lock.lossAtRelease();
  return result;
}
