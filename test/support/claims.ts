/** Claims as the core makes them, for tests of drivers. */

import type { Claim, LockSpec } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { randomId } from "../../src/util/ids.ts";

/** A claim of one key or several, exclusive unless the lock specs say otherwise. */
export function makeClaim(target: string | readonly LockSpec[], overrides: Partial<Claim> = {}): Claim {
  const lockSpecs = typeof target === "string" ? [{ key: target, permits: ALL_PERMITS, limit: ALL_PERMITS }] : target;
  return {
    id: randomId(),
    locks: lockSpecs as unknown as Claim["locks"],
    ttlMs: 60_000,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "test",
    ...overrides,
  };
}
