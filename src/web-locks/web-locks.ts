/** webLocks(): the Web Locks API over the locks of any store. */

import type { Lock } from "../client/lock.ts";
import type { Lockable, Locks } from "../client/locks.ts";
import { UnsupportedError } from "../errors.ts";
import { isObject, requireValid } from "../util/validate.ts";
import { HeldLock } from "./held-lock.ts";
import type { LockRequest } from "./lock-request.ts";
import { notSupported, parseRequest } from "./lock-request.ts";
import type { WebLockInfo, WebLockManager, WebLockSnapshot } from "./types.ts";

const locksRule = (value: unknown): string | null =>
  isObject(value) && typeof value.mutex === "function" ? null : "the locks of connect() or createLocks()";

/**
 * Returns the Web Locks API over these locks. Names are keys. Its requests never join a lock and are never served by a
 * hand-off, so that they keep the order of the standard.
 * @throws TypeError if the argument is wrong
 */
export function webLocks(locks: Locks): WebLockManager {
  requireValid(locks, "locks", locksRule);
  return new LocksManager(locks);
}

/** Of this API: no other request shares its claim at the store. */
const OWN_CLAIM = { handoff: false } as const;

class LocksManager implements WebLockManager {
  readonly #locks: Locks;
  /** For each name, the requests that wait: aborting one makes it wait again, behind others. */
  readonly #waiting = new Map<string, Set<AbortController>>();
  readonly #held = new Map<string, Set<HeldLock>>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  async request<T>(name: string, ...rest: readonly unknown[]): Promise<T> {
    const request = parseRequest(name, rest);
    const lock = await this.#acquire(request).catch((error: unknown) => {
      throw toStandardError(error);
    });
    return (lock === null ? request.callback(null) : this.#hold(request, lock)) as T;
  }

  async query(): Promise<WebLockSnapshot> {
    const snapshot: WebLockSnapshot = { held: [], pending: [] };
    for (const { locks, answer, label } of await this.#locks.list()) {
      const infos = locks.map(
        ({ key, permits, limit }): WebLockInfo => ({
          name: key,
          mode: permits === limit ? "exclusive" : "shared",
          clientId: label,
        }),
      );
      snapshot[answer.state === "held" ? "held" : "pending"].push(...infos);
    }
    return snapshot;
  }

  async #acquire({ name, mode, ifAvailable, steal, signal }: LockRequest): Promise<Lock | null> {
    const lockable = mode === "exclusive" ? this.#locks.mutex(name) : this.#locks.rw(name).read;
    if (ifAvailable) return lockable.tryAcquire(OWN_CLAIM);
    return steal ? this.#steal(name, lockable) : this.#wait(name, lockable, signal);
  }

  async #wait(name: string, lockable: Lockable, signal: AbortSignal | undefined): Promise<Lock> {
    for (;;) {
      const controller = new AbortController();
      const { signal: overtaken } = controller;
      const forget = addTo(this.#waiting, name, controller);
      try {
        const either = signal === undefined ? overtaken : AbortSignal.any([signal, overtaken]);
        const lock = await lockable.acquire({ ...OWN_CLAIM, signal: either });
        if (!overtaken.aborted) return lock;
        await lock.release(); // granted and overtaken in the same turn
      } catch (error) {
        if (!overtaken.aborted || error !== overtaken.reason) throw error;
      } finally {
        forget();
      }
    }
  }

  /** Takes the lock from its holders, and overtakes the requests of this process. */
  async #steal(name: string, lockable: Lockable): Promise<Lock> {
    const views = await this.#locks.list(name);
    const { traits } = this.#locks;
    if (!traits?.fencing || traits.list === "own") {
      throw new UnsupportedError("cannot steal: the store does not show its holders", { keys: [name] });
    }
    const ownTokens = new Set([...(this.#held.get(name) ?? [])].map(({ token }) => token));
    for (const { locks, answer } of views) {
      if (answer.state !== "held" || ownTokens.has(answer.token) || locks.every(({ key }) => key !== name)) continue;
      await this.#locks.revoke(name, answer.token, { now: true, reason: "stolen" });
    }
    // in one turn, so that the store gets the releases, then this claim, then the claims of those who wait again
    for (const waiting of this.#waiting.get(name) ?? []) waiting.abort();
    for (const heldLock of this.#held.get(name) ?? []) heldLock.steal();
    return lockable.acquire(OWN_CLAIM);
  }

  /** A loss rejects at once, but the lock is released only when the callback has settled. */
  #hold({ name, mode, callback }: LockRequest, lock: Lock): Promise<unknown> {
    const heldLock = new HeldLock(name, mode, lock);
    const forget = addTo(this.#held, name, heldLock);
    const work = (async () => callback(heldLock.webLock))();
    const released = work
      .then(
        async (result) => {
          await heldLock.release();
          return result;
        },
        async (error: unknown) => {
          await heldLock.release().catch(() => undefined); // an error of the callback takes precedence
          throw error;
        },
      )
      .finally(forget);
    return Promise.race([released, heldLock.loss]);
  }
}

/** Returns a function that removes it again. */
function addTo<T>(sets: Map<string, Set<T>>, name: string, item: T): () => void {
  const set = sets.get(name) ?? new Set();
  sets.set(name, set.add(item));
  return () => {
    set.delete(item);
    if (set.size === 0 && sets.get(name) === set) sets.delete(name);
  };
}

function toStandardError(error: unknown): unknown {
  const isUnsupported = error instanceof Error && (error as { readonly code?: unknown }).code === "UNSUPPORTED";
  return isUnsupported ? notSupported(error.message, error) : error;
}
