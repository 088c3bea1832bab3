/** The requests of users. */

import { exclusive, semaphorePermits, shared } from "../../src/client/lock-spec.ts";
import type { Lockable, Locks } from "../../src/client/locks.ts";
import type { LockSpec } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";

export interface LockRequest {
  readonly lockable: Lockable;
  readonly holds: readonly LockSpec[];
}

/** Permits of every semaphore. */
const SEMAPHORE_LIMIT = 3;

export function mutexRequest(locks: Locks, key: string): LockRequest {
  return { lockable: locks.mutex(key), holds: exclusive(key) };
}

export function readRequest(locks: Locks, key: string): LockRequest {
  return { lockable: locks.rw(key).read, holds: shared(key) };
}

/** A semaphore on a key that others lock exclusively: they exclude each other. */
export function permitRequest(locks: Locks, key: string, count: number): LockRequest {
  const semaphore = locks.semaphore(key, SEMAPHORE_LIMIT);
  return {
    lockable: {
      acquire: (options) => semaphore.acquire({ ...options, permits: count }),
      tryAcquire: (options) => semaphore.tryAcquire({ ...options, permits: count }),
    } as Lockable,
    holds: semaphorePermits(key, count, SEMAPHORE_LIMIT),
  };
}

/** Most of the keys together, some of them shared. */
export function multiKeyRequest(locks: Locks, keys: readonly string[], random: SeededRandom): LockRequest {
  const chosenKeys = keys.filter(() => random.chance(0.8));
  const requests = (chosenKeys.length > 0 ? chosenKeys : keys.slice(0, 1)).map((key) =>
    random.chance(0.3) ? readRequest(locks, key) : mutexRequest(locks, key),
  );
  return {
    lockable: locks.all(...requests.map(({ lockable }) => lockable)),
    holds: requests.flatMap(({ holds }) => holds),
  };
}
