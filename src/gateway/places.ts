/** The places in the queue that requests over HTTP wait for, by claim. */

import type { Principal } from "../auth/access-control.ts";
import { canAcquire } from "../auth/authorize.ts";
import type { ClientContext } from "../client/local-queue.ts";
import type { Claim, ClaimId } from "../spi/driver.ts";
import type { ClaimOutcome } from "./claim-outcome.ts";
import { heldOutcome, unknownOutcome } from "./claim-outcome.ts";
import type { ClaimRegister } from "./claim-register.ts";
import type { GatewayStore } from "./gateway-store.ts";
import { Place } from "./place.ts";

/** How many ended places are remembered. */
const MAX_ENDED = 1_000;

export class Places {
  readonly #store: GatewayStore;
  readonly #register: ClaimRegister;
  readonly #places = new Map<ClaimId, Place>();
  /** What a late or repeated request learns of the places that ended last. */
  readonly #ended = new Map<ClaimId, Place>();

  constructor(store: GatewayStore, register: ClaimRegister) {
    this.#store = store;
    this.#register = register;
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
    if (!principal.isValid) return unknownOutcome();
    return this.#add(context, principal, claim).attend(deadline, disconnected);
  }

  #add(context: ClientContext, principal: Principal, claim: Claim): Place {
    const place = new Place({
      ...{ store: this.#store, register: this.#register, context, principal, claim, onEnd: this.#onEnd },
    });
    this.#places.set(claim.id, place);
    return place;
  }

  /** Continues to wait for a claim that was answered with "waiting". @throws RequestError */
  async wait(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const context = await this.#store.open(principal);
    const existing = this.find(principal, claim.id);
    if (existing === null) return unknownOutcome();
    if (existing !== undefined) {
      existing.arrivingCount++;
      try {
        await existing.check();
        // the credential or the right was removed meanwhile
        if (!principal.isValid || !canAcquire(principal, claim)) return unknownOutcome();
        if (!existing.isOver) {
          existing.principal = principal;
          // not awaited: it has arrived
          return existing.attend(deadline, disconnected);
        }
      } finally {
        existing.arrivingCount--;
      }
    }
    const ended = this.#ended.get(claim.id);
    if (ended !== undefined && ended.principal.name !== principal.name) return unknownOutcome();
    // a place of another gateway is kept or withdrawn by that one alone
    if (ended === undefined && !this.#store.isOwnServer) return unknownOutcome();
    const granted = ended?.grantedClaim ?? claim;
    const { driver, clock } = context.engine;
    const sentAt = clock.now();
    const [answer] = await this.#store.call(context, () => driver.renew([granted]));
    if (answer?.state !== "waiting") driver.forget?.(granted);
    if (answer === undefined) throw this.#store.unknownError();
    if (answer.state === "none") return { state: "none", reason: answer.reason ?? ended?.lostReason ?? "unknown" };
    if (answer.state === "held") {
      // it was granted to an earlier request, whose response was lost; and now this client has gone, too
      if (disconnected.aborted)
        await this.#store.call(context, () => driver.release([{ claim: granted, hasUnansweredClaim: false }]));
      return heldOutcome(sentAt + answer.remainingMs, clock.now(), granted, answer.token);
    }
    // of a server that was restarted meanwhile; another request may have come first
    return (this.#places.get(claim.id) ?? this.#add(context, principal, claim)).attend(deadline, disconnected);
  }

  /** The place of the claim with this id; undefined: there is none; null: it belongs to another account. */
  find(principal: Principal, id: ClaimId): Place | null | undefined {
    const place = this.#places.get(id);
    return place === undefined || place.principal.name === principal.name ? place : null;
  }

  /** The claim that was granted to this place not long ago; it differs from the first one if the place was passed over. */
  grantedClaim(principal: Principal, id: ClaimId): Claim | null {
    const ended = this.#ended.get(id);
    return ended?.principal.name === principal.name ? ended.grantedClaim : null;
  }

  /** Answers all requests that wait in a queue with "waiting". Their claims stay there, as between two requests. */
  drain(): void {
    for (const place of [...this.#places.values()]) place.drain();
  }

  /** Withdraws all: the gateway ends, and with it what renews their claims. Waits at most so long for the store. */
  async withdrawAll(timeoutMs: number): Promise<void> {
    const withdrawals = [...this.#places.values()].map((place) => place.withdraw("unknown"));
    let timeout: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timeout = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([Promise.all(withdrawals), late]);
    clearTimeout(timeout);
  }

  /** Ends the places of accounts that are gone, or may no longer acquire the keys, and the waits of other credentials. */
  revalidatePrincipals(): void {
    for (const place of [...this.#places.values()]) {
      const { principal, claim } = place;
      const account = this.#store.account(principal.name);
      // a server applies the rights of accounts itself
      const isAllowed = account.isValid && (this.#store.isOwnServer || canAcquire(account, claim));
      if (!isAllowed) void place.withdraw("unknown");
      else if (!principal.isValid) place.dismiss();
    }
  }

  readonly #onEnd = (place: Place): void => {
    const { id } = place.claim;
    if (this.#places.get(id) !== place) return;
    this.#places.delete(id);
    this.#ended.set(id, place);
    if (this.#ended.size > MAX_ENDED) this.#ended.delete(this.#ended.keys().next().value as ClaimId);
  };
}
