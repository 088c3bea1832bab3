/** Claims in a list. */

import type { ClaimView } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

/** A holder of these keys for 90 s, with 20 s of its lease left; tests override single fields. */
export function makeHolder(keys: string, change: Partial<ClaimView> = {}): ClaimView {
  const locks = keys.split(" ").map((key) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS }));
  return {
    locks: locks as unknown as ClaimView["locks"],
    ttlMs: 30_000,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "ana@web-1 pid 4121 (node)",
    tag: "lrrx2sgngs",
    answer: { state: "held", token: 1_800_000_000_000_000n, tokenCount: 1, remainingMs: 20_000.5 },
    ageMs: 100_000,
    heldMs: 90_000.5,
    ...change,
  };
}

/** A waiter that has waited for 5 s. */
export function makeWaiter(keys: string, change: Partial<ClaimView> = {}): ClaimView {
  const { heldMs: _, ...rest } = makeHolder(keys, {
    answer: { state: "waiting", remainingMs: 25_000, recheckMs: 1_000 },
    ageMs: 5_000.5,
    label: "bob@web-2 pid 7 (sh)",
  });
  return { ...rest, ...change };
}
