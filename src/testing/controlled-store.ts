/** A store in memory for test locks: what it holds can be seen, taken away and made unreachable. */

import type { MemoryStore } from "../drivers/memory.ts";
import { memory, memoryStore } from "../drivers/memory.ts";
import { tableOf } from "../drivers/memory-store.ts";
import type { LostReason } from "../errors.ts";
import { formatKeys } from "../errors.ts";
import type { Claim, ClaimId, Driver, DriverEvents } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { MAX_DURATION_MS } from "../util/duration.ts";
import { randomId } from "../util/ids.ts";
import type { ChaosDriver } from "./chaos/driver.ts";
import { chaos } from "./chaos/driver.ts";
import { delegate } from "./delegate.ts";

/** Another process that holds a key. */
export interface OtherHolder extends Disposable {
  /** Releases the key. A second call does nothing. */
  free(): void;
}

export class ControlledStore {
  /** For the client under test. */
  readonly driver: Driver;
  readonly #store: MemoryStore;
  /** For the test itself: its calls reach the store while it is down, too. They take effect before they return. */
  readonly #direct: Driver;
  readonly #network: ChaosDriver;
  readonly #otherClaims = new Set<ClaimId>();
  #events: DriverEvents | null = null;

  constructor(clock: Clock) {
    this.#store = memoryStore(clock);
    this.#direct = memory({ store: this.#store });
    this.#network = chaos(this.#direct);
    this.driver = delegate(this.#network, {
      open: (events) => {
        this.#events = events;
        return this.#network.open(events);
      },
    });
  }

  disconnect(): void {
    this.#network.disconnect();
  }

  reconnect(): void {
    this.#network.reconnect();
  }

  /** The keys of the client under test, sorted. */
  heldKeys(): string[] {
    const keys = this.#heldClaims().flatMap(({ locks }) => locks.map(({ key }) => key));
    return [...new Set(keys)].sort();
  }

  /** @throws TypeError if the client under test does not hold the key */
  lose(key: string, reason: LostReason): void {
    const claims = this.#heldClaims().filter(({ locks }) => locks.some((spec) => spec.key === key));
    if (claims.length === 0) throw new TypeError(`key must be held: no lock on ${formatKeys([key])} can be lost`);
    for (const claim of claims) {
      this.#remove(claim);
      this.#events?.pushed(claim.id, reason === "unknown" ? { state: "none" } : { state: "none", reason });
    }
  }

  /** @throws TypeError if the key is held */
  holdAsOther(key: string): OtherHolder {
    const claim: Claim = {
      id: randomId(),
      locks: [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }],
      ttlMs: MAX_DURATION_MS,
      tokenCount: 1,
      floor: 0n,
      wait: false,
      label: "another process",
    };
    void this.#direct.claim(claim);
    if (!tableOf(this.#store).records.has(claim.id)) {
      throw new TypeError(`key must be free: a lock on ${formatKeys([key])} is held`);
    }
    this.#otherClaims.add(claim.id);
    const free = (): void => {
      if (this.#otherClaims.delete(claim.id)) this.#remove(claim);
    };
    return { free, [Symbol.dispose]: free };
  }

  #remove(claim: Claim): void {
    void this.#direct.release([{ claim, hasUnansweredClaim: false }]);
  }

  #heldClaims(): Claim[] {
    const { clock } = this.#store;
    const table = tableOf(this.#store);
    table.advance({ now: clock.now(), micros: Math.floor(clock.wall() * 1_000) });
    return table.records
      .values()
      .filter(({ isHeld, revokeReason, claim }) => isHeld && revokeReason === null && !this.#otherClaims.has(claim.id))
      .map(({ claim }) => claim);
  }
}
