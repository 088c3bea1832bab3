/** How long leases are, so that a bar can show which part of one is left. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";

/** Usual lengths of leases, in seconds. */
const USUAL_SECONDS = [1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1_800, 3_600, 7_200, 14_400];

/** The usual length of a lease of which so much remains. */
export function estimateLease(remainingMs: number): number {
  const seconds = USUAL_SECONDS.find((usual) => usual * 1_000 >= remainingMs);
  return seconds === undefined ? remainingMs : seconds * 1_000;
}

/** The length of the lease of each claim: as the gateway says, or the most that was seen to remain, rounded up. */
export class LeaseScale {
  #lengths: ReadonlyMap<string, number> = new Map();

  /** Learns from a list. What it does not have is forgotten. */
  learn(claims: readonly ListedClaim[]): void {
    const lengths = new Map<string, number>();
    for (const { tag, remainingMs, leaseMs } of claims) {
      if (remainingMs === null) continue;
      lengths.set(tag, leaseMs ?? Math.max(this.#lengths.get(tag) ?? 0, estimateLease(remainingMs)));
    }
    this.#lengths = lengths;
  }

  /** The longest lease of these claims. */
  lengthOf(tags: readonly string[], remainingMs: number): number {
    const known = tags.map((tag) => this.#lengths.get(tag) ?? 0);
    return Math.max(...known, 0) || estimateLease(remainingMs);
  }
}

/** How much of a lease is left. A holder that works renews it when a third has passed. */
export type LeaseLevel = "ample" | "low" | "critical";

/** The part of the lease that is left, from 0 to 1, and what that means. */
export function measureLease(leftMs: number, lengthMs: number): { readonly part: number; readonly level: LeaseLevel } {
  const part = lengthMs <= 0 ? 0 : Math.min(1, Math.max(0, leftMs / lengthMs));
  return { part, level: part > 0.5 ? "ample" : part > 0.2 ? "low" : "critical" };
}
