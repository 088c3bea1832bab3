/** What the tests of lost releases have in common: a fail-over, and what must follow it. */

import type { Locks } from "../../../src/index.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";

/** Much less than a lease, which is 30 s, and than the interval of its renewal. */
export const SOON_MS = 5_000;

/** Acquires and releases a lock that the test is not about. */
export function useOtherLock(locks: Locks): Promise<void> {
  return locks.using("other lock", () => undefined);
}

/**
 * Simulates a fail-over: the proxy accepts no connection until `promote` has put the state of the new primary in place, and until a
 * call of each of these clients has failed.
 */
export async function failOver(
  proxy: TcpProxy,
  clients: readonly Locks[],
  promote: () => Promise<unknown>,
): Promise<void> {
  proxy.refuseConnections(true);
  proxy.reset();
  const failures = clients.map((locks) => new Promise<unknown>((resolve) => void locks.on("storeDown", resolve)));
  const calls = clients.map(useOtherLock);
  await promote();
  await Promise.all(failures);
  proxy.refuseConnections(false);
  await Promise.all(calls);
}

/** The lock can be acquired long before the lease of the lost claim ends. */
export async function expectFreeSoon(locks: Locks, key: string): Promise<void> {
  const lock = await locks.acquire(key, { wait: SOON_MS });
  await lock.release();
}
