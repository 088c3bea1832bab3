/** webLocks(): the Web Locks API over the locks of any store. */

import type { Lock } from "../client/lock.ts";
import type { Lockable, Locks } from "../client/locks.ts";
import { UnsupportedError } from "../errors.ts";
import { adoptThenable } from "../util/thenable.ts";
import { locksRule, requireValid } from "../util/validate.ts";
import { createLossError, HeldLock } from "./held-lock.ts";
import type { LockRequest } from "./lock-request.ts";
import { notSupported, parseRequest } from "./lock-request.ts";
import type { WebLockInfo, WebLockManager, WebLockMode, WebLockSnapshot } from "./types.ts";

/**
 * Returns the Web Locks API over these locks. Names are keys. Its requests do not join each other's locks and are never served by
 * a hand-off, so that they keep the order of the standard; inside using() of the same key they join that lock.
 * @throws TypeError if the argument is wrong
 */
export function webLocks(locks: Locks): WebLockManager {
  requireValid(locks, "locks", locksRule);
  return new LocksManager(locks);
}

/** What list() of the locks returns at most. */
const MAX_LISTED = 1_000;
/**
 * Of this API: no other request shares its claim at the store, nor gets it by a hand-off. Otherwise a steal would revoke a
 * lock of this client as one of another client, and the store would grant it to a request that the steal is to overtake.
 */
const OWN_CLAIM = { order: "strict" } as const;

class LocksManager implements WebLockManager {
  readonly #locks: Locks;
  /** For each name, the requests that wait: calling one makes it wait again, behind others. */
  readonly #waiting = new Map<string, Set<() => void>>();
  /** For each name, the requests that try once or steal, and have no lock yet: aborting one makes it lose its lock. */
  readonly #trying = new Map<string, Set<AbortController>>();
  readonly #held = new Map<string, Set<HeldLock>>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  async request<T>(name: string, ...rest: readonly unknown[]): Promise<T> {
    const request = parseRequest(name, rest);
    const heldLock = await this.#acquire(request).catch((error: unknown) => {
      throw toStandardError(error);
    });
    return (heldLock === null ? adoptThenable(request.callback(null)) : this.#run(heldLock, request)) as T;
  }

  async query(): Promise<WebLockSnapshot> {
    const snapshot: WebLockSnapshot = { held: [], pending: [] };
    for (const { locks, state, label } of await this.#locks.list()) {
      const infos = locks.map(
        ({ key, mode, permits, limit }): WebLockInfo => ({
          name: key,
          mode: mode === "shared" || permits !== limit ? "shared" : "exclusive",
          clientId: label,
        }),
      );
      snapshot[state === "held" ? "held" : "pending"].push(...infos);
    }
    return snapshot;
  }

  async #acquire({ name, mode, ifAvailable, steal, signal }: LockRequest): Promise<HeldLock | null> {
    const lockable = mode === "exclusive" ? this.#locks.mutex(name) : this.#locks.rw(name).read;
    if (ifAvailable) return this.#try(name, mode, () => lockable.tryAcquire(OWN_CLAIM));
    if (steal) return this.#try(name, mode, (controller) => this.#steal(name, lockable, controller));
    return this.#wait(name, mode, lockable, signal);
  }

  async #wait(name: string, mode: WebLockMode, lockable: Lockable, signal: AbortSignal | undefined): Promise<HeldLock> {
    for (;;) {
      const controller = new AbortController();
      const cancel = (): void => controller.abort(signal?.reason);
      let isOvertaken = false;
      const overtake = (): void => {
        isOvertaken = true;
        controller.abort();
      };
      // not AbortSignal.any(), which leaves an entry at a signal that lives long
      signal?.addEventListener("abort", cancel, { once: true });
      if (signal?.aborted) cancel();
      add(this.#waiting, name, overtake);
      try {
        const lock = await lockable.acquire({ ...OWN_CLAIM, signal: controller.signal });
        if (!isOvertaken) return this.#hold(name, mode, lock);
        await lock.release(); // granted and overtaken in the same turn
      } catch (error) {
        if (!isOvertaken || error !== controller.signal.reason) throw error;
      } finally {
        signal?.removeEventListener("abort", cancel);
        remove(this.#waiting, name, overtake);
      }
    }
  }

  /** Acquires once. A steal that comes before the grant takes this lock, too: the last one wins. */
  async #try(
    name: string,
    mode: WebLockMode,
    acquire: (controller: AbortController) => Promise<Lock | null>,
  ): Promise<HeldLock | null> {
    const controller = new AbortController();
    add(this.#trying, name, controller);
    try {
      const lock = await acquire(controller);
      if (lock === null) return null;
      if (!controller.signal.aborted) return this.#hold(name, mode, lock);
      await lock.release();
      throw controller.signal.reason;
    } finally {
      remove(this.#trying, name, controller);
    }
  }

  /** Takes the lock from its holders, and overtakes the requests of this process. */
  async #steal(name: string, lockable: Lockable, controller: AbortController): Promise<Lock> {
    // the flow has it already: the request joins it, as any other would
    if (this.#locks.holds(name)) return lockable.acquire(OWN_CLAIM);
    while (await this.#revokeListed(name));
    controller.signal.throwIfAborted();
    // in one turn, so that the store gets the releases, then this claim, then the claims of those who wait again
    for (const overtake of this.#waiting.get(name) ?? []) overtake();
    for (const trying of this.#trying.get(name) ?? []) {
      if (trying === controller) break; // those behind it came later
      trying.abort(createLossError(name, "stolen"));
    }
    for (const heldLock of this.#held.get(name) ?? []) heldLock.steal();
    return lockable.acquire(OWN_CLAIM);
  }

  /** Revokes the listed locks of others on this name; true if there may be more holders than a list shows. */
  async #revokeListed(name: string): Promise<boolean> {
    const claims = await this.#locks.list(name);
    const { traits } = this.#locks;
    if (!traits?.fencing || traits.list === "own") {
      throw new UnsupportedError("cannot steal: the store does not show its holders", { keys: [name] });
    }
    const ownTokens = new Set([...(this.#held.get(name) ?? [])].map(({ token }) => token));
    let revokedCount = 0;
    for (const { locks, token } of claims) {
      if (token === null || ownTokens.has(token) || locks.every(({ key }) => key !== name)) continue;
      await this.#locks.revoke(name, token, { now: true, reason: "stolen" });
      revokedCount++;
    }
    // holders are listed before those who wait: these are not to lose their turn
    return revokedCount > 0 && claims.length >= MAX_LISTED && claims.every(({ state }) => state === "held");
  }

  /** Called in the turn that has found that no steal came before: a later one finds the lock. */
  #hold(name: string, mode: WebLockMode, lock: Lock): HeldLock {
    const heldLock = new HeldLock(name, mode, lock);
    // a lock that the flow held before stays held after a release: it can only be revoked
    if (!this.#locks.holds(name)) add(this.#held, name, heldLock);
    return heldLock;
  }

  /** A loss rejects at once, but the lock is released only when the callback has settled. */
  #run(heldLock: HeldLock, { name, callback }: LockRequest): Promise<unknown> {
    const work = (async () => adoptThenable(callback(heldLock.webLock)))();
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
      .finally(() => remove(this.#held, name, heldLock));
    return Promise.race([released, heldLock.loss]);
  }
}

function add<T>(sets: Map<string, Set<T>>, name: string, item: T): void {
  sets.set(name, (sets.get(name) ?? new Set()).add(item));
}

function remove<T>(sets: Map<string, Set<T>>, name: string, item: T): void {
  const set = sets.get(name);
  set?.delete(item);
  if (set?.size === 0) sets.delete(name);
}

function toStandardError(error: unknown): unknown {
  const isUnsupported = error instanceof Error && (error as { readonly code?: unknown }).code === "LOCK_UNSUPPORTED";
  return isUnsupported ? notSupported(error.message, error) : error;
}
