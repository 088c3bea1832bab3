/** What users of locks ask for. */

import type { Lockable } from "../../src/client/lockable.ts";
import type { Locks } from "../../src/client/locks.ts";
import { exclusive, permitsOf, shared } from "../../src/core/holds.ts";
import type { Hold } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";

export interface Wanted {
  readonly lockable: Lockable;
  readonly holds: readonly Hold[];
}

/** Permits of every semaphore. */
const LIMIT = 3;

export function mutex(locks: Locks, key: string): Wanted {
  return { lockable: locks.mutex(key), holds: exclusive(key) };
}

export function reader(locks: Locks, key: string): Wanted {
  return { lockable: locks.rw(key).read, holds: shared(key) };
}

/** A semaphore on a key that others lock whole: they exclude each other. */
export function permits(locks: Locks, key: string, count: number): Wanted {
  const semaphore = locks.semaphore(key, LIMIT);
  return {
    lockable: {
      acquire: (options) => semaphore.acquire({ ...options, permits: count }),
      tryAcquire: (options) => semaphore.tryAcquire({ ...options, permits: count }),
    } as Lockable,
    holds: permitsOf(key, count, LIMIT),
  };
}

/** Most of the keys together, some of them shared. */
export function several(locks: Locks, keys: readonly string[], random: SeededRandom): Wanted {
  const some = keys.filter(() => random.chance(0.8));
  const parts = (some.length > 0 ? some : keys.slice(0, 1)).map((key) =>
    random.chance(0.3) ? reader(locks, key) : mutex(locks, key),
  );
  return {
    lockable: locks.all(...parts.map(({ lockable }) => lockable)),
    holds: parts.flatMap(({ holds }) => holds),
  };
}
