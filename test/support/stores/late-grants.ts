/**
 * A database answers a `claim` call after the client has given it up and repeated it: another session has locked the rows of the
 * buckets. The late answer is a grant; the repeated call still waits for its connection when the lock is released.
 */

import { expect } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";

/** The client gives a call up after a sixth of it, a second. */
export const LATE_GRANTS_TTL_MS = 6_000;
const LOCKED_MS = 1_500;
const KEYS = 40;

/**
 * @param locks with this ttl, and a pool of a few connections
 * @param lockRows locks the rows of all buckets in a session of its own
 */
export async function expectLateGrantsReleased(
  locks: Locks,
  lockRows: () => Promise<{ end(): Promise<unknown> }>,
): Promise<void> {
  await locks.using("warm", () => undefined);
  const locked = await lockRows();
  const lockedAt = performance.now();
  const releases = Array.from({ length: KEYS }, async (_, index) => (await locks.acquire(`late ${index}`)).release());
  await until(() => performance.now() - lockedAt > LOCKED_MS, { within: 10_000, what: "the end of the time" });
  await locked.end();
  expect(await Promise.all(releases)).toEqual(releases.map(() => true));
  expect(await locks.list()).toEqual([]);
}
