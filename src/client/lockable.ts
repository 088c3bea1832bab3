/** acquire(), tryAcquire() and using(), bound to a target. */

import type { Client } from "./client.ts";
import type { Lock, LockHandle } from "./lock.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireOptions, AcquireSettings, TryOptions } from "./options.ts";
import { parseAcquireOptions } from "./options.ts";

/** Something that can be locked: a fixed set of keys and permits. */
export interface Lockable<Extra = unknown> {
  /**
   * Waits for the lock.
   * @throws TypeError for wrong options; LockTimeoutError after `wait`; the signal's reason on abort; DeadlockError;
   * DriverError if the store could not be reached before the wait ended; FatalDriverError; UnsupportedError; ClosedError
   */
  acquire(options?: AcquireOptions & Extra): Promise<Lock>;
  /** Returns the lock if it is free now, else null; tries once. @throws as acquire(), but never LockTimeoutError */
  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null>;
  /**
   * Acquires the lock, runs fn in an async context in which nested requests join the lock, and releases it when fn has
   * settled. @throws what fn throws; if fn succeeds, LockLostError if the lock was lost meanwhile; and as acquire()
   */
  using<T>(fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  using<T>(options: AcquireOptions & Extra, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
}

/** A fixed target, or a function that makes one from the options of a call (the permits of a semaphore). */
type TargetSource<Extra> = LockTarget | ((options: Extra | undefined) => LockTarget);

/** A Lockable whose target is known, so that all() can combine it with others. */
export class BoundLockable<Extra> implements Lockable<Extra> {
  readonly #client: Client;
  readonly #targetSource: TargetSource<Extra>;
  readonly #extraOption: string | undefined;

  /** @param extraOption the name of an option that targetSource reads */
  constructor(client: Client, targetSource: TargetSource<Extra>, extraOption?: string) {
    this.#client = client;
    this.#targetSource = targetSource;
    this.#extraOption = extraOption;
  }

  target(options?: Extra): LockTarget {
    return typeof this.#targetSource === "function" ? this.#targetSource(options) : this.#targetSource;
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
    return runWithLock(lock as LockHandle, fn);
  }

  /** Not an async function, since an uncontended acquire should cost only one promise. */
  #acquire(options: (AcquireOptions & Extra) | undefined, isTry: boolean): Promise<LockHandle | null> {
    try {
      const target = this.target(options);
      const settings = this.#resolveSettings(options, isTry);
      return this.#client.acquire(target, settings, isTry);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #resolveSettings(options: AcquireOptions | undefined, isTry: boolean): AcquireSettings {
    const { settings } = this.#client;
    const acquireSettings =
      options === undefined ? settings : parseAcquireOptions(options, settings, isTry, this.#extraOption);
    return isTry ? { ...acquireSettings, waitMs: 0 } : acquireSettings;
  }
}

/** An error of fn takes precedence; a loss is thrown even if fn succeeded. */
async function runWithLock<T>(lock: LockHandle, fn: (lock: Lock) => T | Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await lock.run(() => fn(lock));
  } catch (error) {
    await lock.release();
    throw error;
  }
  if (!(await lock.release())) throw lock.releaseLoss();
  return result;
}
