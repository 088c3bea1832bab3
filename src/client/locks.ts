/** createLocks(driver): the main object of the API, and what it locks. */

import type { Election, LeaderOptions } from "../leader/election.ts";
import { createElection } from "../leader/election.ts";
import type { ClaimInfo } from "../spi/claim-info.ts";
import type { Driver, Traits } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { rejectOnThrow } from "../util/timeout.ts";
import { driverRule, isObject, LOCKS, requireValid } from "../util/validate.ts";
import type { ArgsOf, KeySource } from "../wrapping/locked-call.ts";
import type { WrapOptions } from "../wrapping/wrap.ts";
import { wrap } from "../wrapping/wrap.ts";
import type { RevokeOptions } from "./admin.ts";
import { Client } from "./client.ts";
import type { LockEvents } from "./events.ts";
import type { Interceptor, Interceptors } from "./interceptors.ts";
import type { Lock, LockHandle } from "./lock.ts";
import { HELD_UNTIL_RELEASE } from "./lock.ts";
import type { LockTarget } from "./lock-spec.ts";
import { combineTargets, mutexTarget, readTarget, requireCount, semaphoreTarget } from "./lock-spec.ts";
import type { AcquireOptions, AcquireSettings, LocksOptions, TryOptions } from "./options.ts";
import { parseAcquireOptions, parseClientOptions } from "./options.ts";
import type { FlowHolds } from "./reentrancy.ts";

/** Something that can be locked: a fixed set of keys and permits. */
export interface Lockable<Extra = unknown> {
  /**
   * Waits for the lock.
   * @throws TypeError for wrong options; LockTimeoutError after `wait`; the signal's reason on abort; DeadlockError;
   * StoreError if the store could not be reached before the wait ended; StoreRefusedError; UnsupportedError;
   * ClosedError
   */
  acquire(options?: AcquireOptions & Extra): Promise<Lock>;
  /** Returns the lock if it is free now, else null; tries once. @throws as acquire(), but never LockTimeoutError */
  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null>;
  /**
   * Acquires the lock, runs fn in an async context in which nested requests join the lock, and releases it when fn has
   * settled. @throws what fn throws; if fn succeeds, LockLostError if the lock was lost meanwhile; and as acquire()
   */
  using<T>(fn: (lock: Lock) => T | PromiseLike<T>): Promise<T>;
  using<T>(options: AcquireOptions & Extra, fn: (lock: Lock) => T | PromiseLike<T>): Promise<T>;
}

/** Locks on one store. Made by connect() or createLocks(); an idle one keeps no process alive. */
export interface Locks extends AsyncDisposable {
  /** mutex(key).acquire(options) */
  acquire(key: string, options?: AcquireOptions): Promise<Lock>;
  /** mutex(key).tryAcquire(options) */
  tryAcquire(key: string, options?: TryOptions): Promise<Lock | null>;
  /** mutex(key).using(options, fn) */
  using<T>(key: string, fn: (lock: Lock) => T | PromiseLike<T>): Promise<T>;
  using<T>(key: string, options: AcquireOptions, fn: (lock: Lock) => T | PromiseLike<T>): Promise<T>;
  /** Exclusive. @throws TypeError for a wrong key: 1 to 512 bytes of UTF-8 without control characters */
  mutex(key: string): Lockable;
  /** Many readers or one writer, in order of arrival; write is the same as mutex(key). */
  rw(key: string): { readonly read: Lockable; readonly write: Lockable };
  /** At most `limit` permits of the key are held at once; each acquire takes `permits`, default 1. Never re-entrant. */
  semaphore(key: string, limit: number): Lockable<{ readonly permits?: number }>;
  /**
   * Locks up to 128 keys at once, given one by one or as a list. They are acquired in key order, so that such requests
   * never deadlock each other.
   */
  all(...targets: readonly (string | Lockable)[]): Lockable;
  all(targets: readonly (string | Lockable)[]): Lockable;
  /**
   * Returns a function that runs `fn` under a lock, each time it is called. `key` is a template with references to the
   * arguments ("order:#{orderId}", "order:#{order.id}", "order:#{0}") or a function of them; an array of these is
   * several locks. The running function reaches its lock by currentLock().
   * @throws TypeError if an argument is wrong, or a reference names no parameter of `fn`
   */
  wrap<This, Args extends readonly unknown[], Result>(
    key: KeySource<ArgsOf<Args>> | readonly KeySource<ArgsOf<Args>>[],
    fn: (this: This, ...args: Args) => Result | PromiseLike<Result>,
  ): (this: This, ...args: Args) => Promise<Result>;
  wrap<This, Args extends readonly unknown[], Result>(
    key: KeySource<ArgsOf<Args>> | readonly KeySource<ArgsOf<Args>>[],
    options: WrapOptions<ArgsOf<Args>, NoInfer<Result>>,
    fn: (this: This, ...args: Args) => Result | PromiseLike<Result>,
  ): (this: This, ...args: Args) => Promise<Result>;
  /**
   * Returns a candidate for the leadership of a name: `for await (const term of locks.leader(name))` waits, and runs
   * its body once for each term. The leader holds the exclusive lock on the key `name`.
   * @throws TypeError for a wrong name or option, or if the client has `renew: false`
   */
  leader(name: string, options?: LeaderOptions): Election;
  /**
   * Continues a detached lock in this client. Another client that attaches the same reference holds the lock, too.
   * @throws TypeError for a damaged reference; UnsupportedError if this client already holds the lock; LockLostError
   * with the reason; StoreError
   */
  attach(reference: string): Promise<Lock>;
  /** Is this key held in the current async flow? */
  holds(key: string): boolean;
  /** The abilities of the store; null until it has been opened, by connect() or the first request. */
  readonly traits: Traits | null;
  /**
   * Lists at most 1,000 live claims with a key that starts with prefix: fronts of queues first. May be a little stale.
   */
  list(prefix?: string): Promise<readonly ClaimInfo[]>;
  /** Releases all locks of this client, which stays usable. Their holders lose them with reason "released". */
  releaseAll(): Promise<void>;
  /**
   * Revokes the lock on key from the holder with this token. The holder cannot renew any more and loses the lock with
   * reason "revoked", but the key stays locked until the holder releases it or its lease ends; with `now` it is free at
   * once. True if the key was held with that token.
   * @throws TypeError; UnsupportedError if the store cannot revoke; StoreError if it failed, StoreRefusedError if it
   * refused
   */
  revoke(key: string, token: bigint, options?: RevokeOptions): Promise<boolean>;
  /** Adds a listener for an event of this client; see LockEvents. */
  on<E extends keyof LockEvents>(event: E, listener: (detail: LockEvents[E]) => void): Disposable;
  /**
   * Rejects waiting requests with ClosedError, releases all locks (waiting for the store at most 5 s) and closes the
   * connection.
   */
  close(): Promise<void>;
}

/**
 * Returns the locks on this driver's store. The first request opens the driver.
 * @throws TypeError if the argument is not a driver, or naming the wrong option
 */
export function createLocks(driver: Driver, options?: LocksOptions): Locks {
  requireValid(driver, "driver", driverRule);
  return bindLocks(new Client(driver, parseClientOptions(options), Math.random));
}

/**
 * Returns the Locks of a client. Internal: connect() opens the client first, and the simulator has its own random
 * source.
 */
export function bindLocks(client: Client): Locks {
  const { settings, flowHolds } = client;
  const { prefix } = settings;
  const bind = (target: LockTarget): BoundLockable<unknown> => new BoundLockable(client, target);
  const mutex = (key: string): BoundLockable<unknown> => bind(mutexTarget(prefix, key));

  const all = (...targets: readonly (string | Lockable | readonly (string | Lockable)[])[]): Lockable => {
    const list = targets.length === 1 && Array.isArray(targets[0]) ? targets[0] : targets;
    return bind(
      combineTargets(
        prefix,
        list.map((item) => toTarget(item, prefix)),
      ),
    );
  };

  const locks: Locks = {
    acquire: (key, options) => rejectOnThrow(() => mutex(key).acquire(options)),
    tryAcquire: (key, options) => rejectOnThrow(() => mutex(key).tryAcquire(options)),
    using: <T>(
      key: string,
      first: AcquireOptions | ((lock: Lock) => T | PromiseLike<T>),
      second?: (lock: Lock) => T | PromiseLike<T>,
    ) => rejectOnThrow(() => mutex(key).using(first as AcquireOptions, second as (lock: Lock) => T | PromiseLike<T>)),
    mutex,
    rw: (key) => ({ read: bind(readTarget(prefix, key)), write: mutex(key) }),
    semaphore(key, limit) {
      requireCount(limit, "limit", ALL_PERMITS - 1);
      mutexTarget(prefix, key);
      const target = (options?: { readonly permits?: number }): LockTarget =>
        semaphoreTarget(prefix, key, options?.permits, limit);
      return new BoundLockable(client, target, "permits");
    },
    all,
    wrap: <This, Args extends readonly unknown[], Result>(
      key: KeySource<Args> | readonly KeySource<Args>[],
      first: WrapOptions<Args, Result> | ((this: This, ...args: Args) => Result | PromiseLike<Result>),
      second?: (this: This, ...args: Args) => Result | PromiseLike<Result>,
    ) =>
      typeof first === "function"
        ? wrap({ all }, key, requireNothingBehind(second), first)
        : wrap({ all }, key, first, second as (this: This, ...args: Args) => Result | PromiseLike<Result>),
    leader: (name, options = {}) => createElection(client, name, options),
    attach: (reference) => client.attach(reference),
    holds: (key) => flowHolds.find(prefix + key).length > 0,
    get traits() {
      return client.context?.traits ?? null;
    },
    list: async (keyPrefix = "") => (await import("./admin.ts")).listClaims(client, keyPrefix),
    releaseAll: () => client.releaseAll(),
    revoke: async (key, token, options = {}) => (await import("./admin.ts")).revoke(client, key, token, options),
    on: (event, listener) => client.events.on(event, listener),
    close: () => client.close(),
    [Symbol.asyncDispose]: () => client.close(),
  };
  return Object.defineProperty(locks, INTERCEPTORS, { value: client.interceptors });
}

/** Where intercept() finds those of a Locks. Every copy of the package knows this symbol. */
const INTERCEPTORS = Symbol.for("holdfast.interceptors");

/**
 * Runs `interceptor` around each function that using(), wrap() or @locked() of these locks calls, for example to set a
 * tracing context. An error of it becomes that of the call. The Disposable removes it.
 * @throws TypeError if an argument is wrong
 */
export function intercept(locks: Locks, interceptor: Interceptor): Disposable {
  // a copy of the object has its methods only
  requireValid(locks, "locks", (value) => (isObject(value) && INTERCEPTORS in value ? null : LOCKS));
  return (locks as Locks & { readonly [INTERCEPTORS]: Interceptors })[INTERCEPTORS].add(interceptor);
}

const OPTIONS_BEHIND = "options must come before fn: (key, options, fn)";

/** @throws TypeError if options stand behind the function */
function requireNothingBehind(last: unknown): object {
  if (last !== undefined) throw new TypeError(OPTIONS_BEHIND);
  return {};
}

function toTarget(item: string | Lockable, prefix: string): LockTarget {
  if (typeof item === "string") return mutexTarget(prefix, item);
  if (Array.isArray(item)) throw new TypeError("all() takes keys one by one or as one list, not a list inside a list");
  if (!(item instanceof BoundLockable))
    throw new TypeError("all() takes keys and the results of mutex(), rw(), semaphore() and all()");
  return item.target();
}

/** A fixed target, or a function that makes one from the options of a call (the permits of a semaphore). */
type TargetSource<Extra> = LockTarget | ((options: Extra | undefined) => LockTarget);

type Caller = "acquire" | "tryAcquire";

/** A Lockable whose target is known, so that all() can combine it with others. */
class BoundLockable<Extra> implements Lockable<Extra> {
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
    return this.#acquire(options, "acquire") as Promise<Lock>;
  }

  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null> {
    return this.#acquire(options, "tryAcquire");
  }

  using<T>(
    first: (AcquireOptions & Extra) | ((lock: Lock) => T | PromiseLike<T>),
    second?: (lock: Lock) => T | PromiseLike<T>,
  ): Promise<T> {
    const fn = typeof first === "function" ? (first as (lock: Lock) => T | PromiseLike<T>) : second;
    if (typeof fn !== "function") return Promise.reject(new TypeError("fn must be a function"));
    if (fn === first && second !== undefined) return Promise.reject(new TypeError(OPTIONS_BEHIND));
    const acquired = this.#acquire(typeof first === "function" ? undefined : first, "acquire") as Promise<LockHandle>;
    const { flowHolds, interceptors } = this.#client;
    if (interceptors.isEmpty) return runWithLock(flowHolds, acquired, fn);
    return acquired.then((lock) => interceptors.run(lock, () => runWithLock(flowHolds, lock, fn)));
  }

  /** Not an async function, since an uncontended acquire should cost only one promise. */
  #acquire(options: (AcquireOptions & Extra) | undefined, caller: Caller): Promise<LockHandle | null> {
    try {
      const target = this.target(options);
      const settings = this.#resolveSettings(options, caller);
      return this.#client.acquire(target, settings);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #resolveSettings(options: AcquireOptions | undefined, caller: Caller): AcquireSettings {
    const { settings } = this.#client;
    const acquireSettings =
      options === undefined ? settings : parseAcquireOptions(options, settings, caller, this.#extraOption);
    return caller === "acquire" ? acquireSettings : { ...acquireSettings, waitMs: 0, isNullIfBusy: true };
  }
}

/**
 * An error of fn takes precedence; a loss is thrown even if fn succeeded. One function with one promise, since each
 * promise more costs as much as a tenth of a lock in memory.
 */
async function runWithLock<T>(
  flowHolds: FlowHolds,
  acquired: LockHandle | Promise<LockHandle>,
  fn: (lock: Lock) => T | PromiseLike<T>,
): Promise<T> {
  const lock = acquired instanceof Promise ? await acquired : acquired;
  let result: T;
  try {
    lock.throwIfLost();
    const frame = flowHolds.enter(lock.localHolds);
    try {
      result = await flowHolds.runIn(frame, () => fn(lock));
    } finally {
      flowHolds.leave(frame);
    }
  } catch (error) {
    await lock.release();
    throw error;
  }
  const released = lock.release();
  if (released !== HELD_UNTIL_RELEASE && !(await released)) throw lock.releaseLoss();
  return result;
}
