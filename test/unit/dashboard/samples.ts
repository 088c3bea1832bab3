/** Claims and events as the gateway sends them. */

import type { DashboardEvent, ListedClaim } from "../../../src/gateway/dashboard/view-types.ts";

export function makeClaim(key: string, change: Partial<ListedClaim> = {}): ListedClaim {
  const held = { state: "held", token: "7", remainingMs: 20_000, ageMs: 5_000, heldMs: 4_000 } as const;
  return { tag: `tag of ${key}`, locks: [{ key, mode: "exclusive" }], label: "ana", ...held, ...change };
}

export function makeWaiter(key: string, change: Partial<ListedClaim> = {}): ListedClaim {
  const { heldMs: _, ...claim } = makeClaim(key, { state: "waiting", token: null, tag: "w", ...change });
  return claim;
}

export function makeEvent(sequence: number, change: Partial<DashboardEvent> = {}): DashboardEvent {
  const claim = { keys: ["k"], tag: "t", label: "ana", token: null, account: "" };
  return { sequence, at: sequence * 1_000, kind: "granted", ...claim, source: "reported", ...change };
}
