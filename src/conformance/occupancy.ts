/** Who holds which key, as the holders see it: none beside another that excludes it, and tokens that rise. */

import assert from "node:assert/strict";
import type { Lock } from "../client/lock.ts";
import { Violation } from "./context.ts";

/** How a key is held. */
export type HoldMode = "write" | "read" | "permit";

/** A lock whose holder's code runs. */
export interface Holder {
  readonly lock: Lock;
  readonly mode: HoldMode;
}

interface KeyOccupancy {
  readonly holders: Set<Holder>;
  /** The highest token of a writer, and of all holders. */
  lastWriter: bigint;
  lastToken: bigint;
}

export class Occupancy {
  readonly #permitLimit: number;
  readonly #hasTokens: boolean;
  readonly #keys = new Map<string, KeyOccupancy>();

  constructor(permitLimit: number, hasTokens: boolean) {
    this.#permitLimit = permitLimit;
    this.#hasTokens = hasTokens;
  }

  /** @throws Violation if other clients hold a key that this lock excludes, by their clocks */
  enter(lock: Lock, mode: HoldMode): Holder {
    const holder = { lock, mode };
    for (const key of lock.keys) {
      const occupancy = this.#keys.get(key) ?? { holders: new Set(), lastWriter: 0n, lastToken: 0n };
      this.#keys.set(key, occupancy);
      // after a stall the next holder's code may run before that of one whose lease has ended, and which learns of it then
      const others = [...occupancy.holders].filter((other) => other.lock.remainingMs > 0);
      if (!this.#isAdmitted(mode, others)) throw new Violation(`too many hold "${key}"`);
      occupancy.holders.add(holder);
      if (this.#hasTokens) noteToken(occupancy, key, holder);
    }
    return holder;
  }

  leave(holder: Holder): void {
    for (const key of holder.lock.keys) this.#keys.get(key)?.holders.delete(holder);
  }

  #isAdmitted(mode: HoldMode, others: readonly Holder[]): boolean {
    if (mode === "write") return others.length === 0;
    if (others.some((other) => other.mode === "write")) return false;
    return mode === "read" || others.length < this.#permitLimit;
  }
}

function noteToken(occupancy: KeyOccupancy, key: string, { lock, mode }: Holder): void {
  const token = lock.tokenOf(key);
  // holders that share a key may learn of their grants in another order
  const last = mode === "write" ? occupancy.lastToken : occupancy.lastWriter;
  assert.ok(token > last, `the tokens of "${key}" rise`);
  if (mode === "write") occupancy.lastWriter = token;
  if (token > occupancy.lastToken) occupancy.lastToken = token;
}
