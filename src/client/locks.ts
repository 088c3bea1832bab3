/** createLocks(driver): the main object of the API. */

import type { ClaimView, Driver, Traits } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { rejectOnThrow } from "../util/timeout.ts";
import type { RevokeOptions } from "./admin.ts";
import { Client } from "./client.ts";
import { closeOnSignal } from "./close-on-signal.ts";
import type { LockEvents } from "./events.ts";
import type { Lock } from "./lock.ts";
import type { LockTarget } from "./lock-spec.ts";
import { combineTargets, mutexTarget, readTarget, requireCount, semaphoreTarget } from "./lock-spec.ts";
import type { Lockable } from "./lockable.ts";
import { BoundLockable } from "./lockable.ts";
import type { AcquireOptions, LocksOptions, TryOptions } from "./options.ts";
import { parseClientOptions, requireMethod } from "./options.ts";

/** Locks on one store. Made by connect() or createLocks(); an idle one keeps no process alive. */
export interface Locks extends AsyncDisposable {
  /** mutex(key).acquire(options) */
  acquire(key: string, options?: AcquireOptions): Promise<Lock>;
  /** mutex(key).tryAcquire(options) */
  tryAcquire(key: string, options?: TryOptions): Promise<Lock | null>;
  /** mutex(key).using(options, fn) */
  using<T>(key: string, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  using<T>(key: string, options: AcquireOptions, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  /** Exclusive. @throws TypeError for a wrong key: 1 to 512 bytes of UTF-8 without control characters */
  mutex(key: string): Lockable;
  /** Many readers or one writer, in order of arrival; write is the same as mutex(key). */
  rw(key: string): { readonly read: Lockable; readonly write: Lockable };
  /** At most `limit` permits of the key are held at once; each acquire takes `permits`, default 1. Never re-entrant. */
  semaphore(key: string, limit: number): Lockable<{ readonly permits?: number }>;
  /** Locks up to 128 keys at once. They are acquired in key order, so that such requests never deadlock each other. */
  all(...targets: readonly (string | Lockable)[]): Lockable;
  /**
   * Continues a detached lock in this client. @throws TypeError for a damaged reference; UnsupportedError if this client
   * already holds the lock; LockLostError with the reason; DriverError
   */
  attach(reference: string): Promise<Lock>;
  /** Is this key held in the current async flow? */
  holds(key: string): boolean;
  /** The abilities of the store. Final once connect() or the first request has settled. */
  readonly traits: Traits;
  /** Lists at most 1,000 live claims with a key that starts with prefix: fronts of queues first. May be a little stale. */
  list(prefix?: string): Promise<readonly ClaimView[]>;
  /** Releases all locks of this client, which stays usable. Their holders lose them with reason "released". */
  releaseAll(): Promise<void>;
  /** On SIGINT or SIGTERM, closes within 2 s, then raises the signal again. The Disposable removes the signal handlers. */
  closeOnSignal(): Disposable;
  /**
   * Revokes the lock on key from the holder with this token. The holder cannot renew any more and loses the lock with reason
   * "revoked", but the key stays locked until the holder releases it or its lease ends; with `now` it is free at once. True
   * if the key was held with that token.
   * @throws TypeError; UnsupportedError if the store cannot revoke; DriverError if it failed, FatalDriverError if it refused
   */
  revoke(key: string, token: bigint, options?: RevokeOptions): Promise<boolean>;
  /** Adds a listener for an event of this client; see LockEvents. */
  on<E extends keyof LockEvents>(event: E, listener: (detail: LockEvents[E]) => void): Disposable;
  /** Rejects waiting requests with ClosedError, releases all locks (waiting at most 10 s) and closes the connection. */
  close(): Promise<void>;
}

/**
 * Returns the locks on this driver's store. The first request opens the driver.
 * @throws TypeError if the argument is not a driver, or naming the wrong option
 */
export function createLocks(driver: Driver, options?: LocksOptions): Locks {
  requireMethod(driver, "claim", "driver");
  return bindLocks(new Client(driver, parseClientOptions(options), Math.random));
}

/** Returns the Locks of a client. Internal: connect() opens the client first, and the simulator has its own random source. */
export function bindLocks(client: Client): Locks {
  const { settings, flowHolds, driver } = client;
  const { prefix } = settings;
  const bind = (target: LockTarget): BoundLockable<unknown> => new BoundLockable(client, target);
  const mutex = (key: string): BoundLockable<unknown> => bind(mutexTarget(prefix, key));

  return {
    acquire: (key, options) => rejectOnThrow(() => mutex(key).acquire(options)),
    tryAcquire: (key, options) => rejectOnThrow(() => mutex(key).tryAcquire(options)),
    using: async <T>(
      key: string,
      first: AcquireOptions | ((lock: Lock) => T | Promise<T>),
      second?: (lock: Lock) => T | Promise<T>,
    ) => mutex(key).using(first as AcquireOptions, second as (lock: Lock) => T | Promise<T>),
    mutex,
    rw: (key) => ({ read: bind(readTarget(prefix, key)), write: mutex(key) }),
    semaphore(key, limit) {
      requireCount(limit, "limit", ALL_PERMITS - 1);
      mutexTarget(prefix, key);
      const target = (options?: { readonly permits?: number }): LockTarget =>
        semaphoreTarget(prefix, key, options?.permits, limit);
      return new BoundLockable(client, target, "permits");
    },
    all: (...targets) =>
      bind(
        combineTargets(
          prefix,
          targets.map((item) => toTarget(item, prefix)),
        ),
      ),
    attach: (reference) => client.attach(reference),
    holds: (key) => flowHolds.find(prefix + key).length > 0,
    get traits() {
      return driver.traits;
    },
    list: async (keyPrefix = "") => (await import("./admin.ts")).listClaims(client, keyPrefix),
    releaseAll: () => client.releaseAll(),
    revoke: async (key, token, options = {}) => (await import("./admin.ts")).revoke(client, key, token, options),
    closeOnSignal: () => closeOnSignal(() => client.close()),
    on: (event, listener) => client.events.on(event, listener),
    close: () => client.close(),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

function toTarget(item: string | Lockable, prefix: string): LockTarget {
  if (typeof item === "string") return mutexTarget(prefix, item);
  if (Array.isArray(item)) throw new TypeError("all() takes keys one by one, not in an array: spread it, all(...keys)");
  if (!(item instanceof BoundLockable))
    throw new TypeError("all() takes keys and the results of mutex(), rw(), semaphore() and all()");
  return item.target();
}
