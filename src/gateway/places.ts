/** The places in the queue that requests over HTTP wait for, by claim. */

import type { Principal } from "../auth/access-control.ts";
import type { LostReason } from "../errors.ts";
import type { Claim, ClaimId } from "../spi/driver.ts";
import type { ClaimOutcome } from "./claim-outcome.ts";
import { heldOutcome, unknownOutcome } from "./claim-outcome.ts";
import type { GatewayStore } from "./gateway-store.ts";
import { Place } from "./place.ts";

/** How many expired places are remembered. */
const MAX_EXPIRED = 1_000;

export class Places {
  readonly #store: GatewayStore;
  readonly #places = new Map<ClaimId, Place>();
  /** Those that no request waited for in time, so that a late request learns why. */
  readonly #expired = new RecentIds(MAX_EXPIRED);

  constructor(store: GatewayStore) {
    this.#store = store;
  }

  /** The number of waiting claims, with those for which no request waits at the moment. */
  get size(): number {
    return this.#places.size;
  }

  /**
   * Makes a claim and waits until it is held, at most until `deadline`. `disconnected` ends the wait and the claim.
   * @throws RequestError
   */
  async claim(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const context = await this.#store.open(principal);
    return this.#add(new Place({ store: this.#store, context, principal, claim, onEnd: this.#onEnd })).attend(
      deadline,
      disconnected,
    );
  }

  /** Continues to wait for a claim that was answered with "waiting", by this gateway or before a restart of the server. */
  async wait(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const context = await this.#store.open(principal);
    const existing = this.find(principal, claim.id);
    if (existing === null) return unknownOutcome();
    if (existing !== undefined) {
      existing.principal = principal;
      await existing.check();
      return existing.attend(deadline, disconnected);
    }
    const { driver, clock } = context.engine;
    const sentAt = clock.now();
    const [answer] = await this.#store.call(context, () => driver.renew([claim]));
    if (answer?.state !== "waiting") driver.forget?.(claim);
    if (answer === undefined) throw this.#store.unknownError();
    if (answer.state === "none") return { state: "none", reason: answer.reason ?? this.lostReason(claim.id) };
    // it was granted to an earlier request, whose response was lost
    if (answer.state === "held") return heldOutcome(sentAt + answer.remainingMs, clock.now(), claim, answer.token);
    return this.claim(principal, claim, deadline, disconnected);
  }

  /** Why the place of this claim has ended, as far as it is remembered. */
  lostReason(id: ClaimId): LostReason {
    return this.#expired.has(id) ? "expired" : "unknown";
  }

  /** The place of the claim with this id; undefined: there is none; null: it belongs to another account. */
  find(principal: Principal, id: ClaimId): Place | null | undefined {
    const place = this.#places.get(id);
    return place === undefined || place.principal.name === principal.name ? place : null;
  }

  /** Answers all waiting requests with "waiting". Their claims stay in the queue, as between two requests. */
  drain(): void {
    for (const place of [...this.#places.values()]) place.pause();
  }

  /** Ends the places of removed credentials, after the accounts have changed. */
  revalidatePrincipals(): void {
    for (const place of [...this.#places.values()]) if (!place.principal.isValid) void place.withdraw("unknown");
  }

  readonly #onEnd = (place: Place): void => {
    const { id } = place.claim;
    if (this.#places.get(id) === place) this.#places.delete(id);
    if (place.lostReason === "expired") this.#expired.add(id);
  };

  #add(place: Place): Place {
    this.#places.set(place.claim.id, place);
    return place;
  }
}

/** The last ids that were added. */
class RecentIds {
  readonly #ids = new Set<ClaimId>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  add(id: ClaimId): void {
    this.#ids.add(id);
    if (this.#ids.size > this.#max) this.#ids.delete(this.#ids.values().next().value as ClaimId);
  }

  has(id: ClaimId): boolean {
    return this.#ids.has(id);
  }
}
