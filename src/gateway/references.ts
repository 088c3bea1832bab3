/** Renews and releases claims by reference. The claim may have been made over HTTP or by any other client. */

import type { Principal } from "../auth/access-control.ts";
import { authorizeAcquire, canAcquire } from "../auth/authorize.ts";
import type { ClientContext } from "../client/local-queue.ts";
import type { LostReason } from "../errors.ts";
import type { EventKind } from "../lock-table/events.ts";
import type { DetachedClaim } from "../protocol/lock-reference.ts";
import { RequestError } from "../server/request-error.ts";
import type { Answer } from "../spi/driver.ts";
import type { ClaimOutcome, LostOutcome } from "./claim-outcome.ts";
import { heldOutcome, unknownOutcome } from "./claim-outcome.ts";
import type { ClaimRegister } from "./claim-register.ts";
import type { GatewayStore } from "./gateway-store.ts";
import type { Places } from "./places.ts";

/** The event of a held claim that turns out to be lost. */
const LOSS_EVENTS: Readonly<Record<LostReason, EventKind>> = {
  expired: "expired",
  released: "released",
  revoked: "revoked",
  maxHold: "maxHoldExceeded",
  unknown: "expired",
};

export class References {
  readonly #store: GatewayStore;
  readonly #places: Places;
  readonly #register: ClaimRegister;

  constructor(store: GatewayStore, places: Places, register: ClaimRegister) {
    this.#store = store;
    this.#places = places;
    this.#register = register;
  }

  /** Renews the leases of a reference. @throws RequestError */
  async renew(principal: Principal, parts: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = parts as readonly [DetachedClaim];
    for (const { claim } of parts) authorizeAcquire(principal, claim);
    const context = await this.#store.open(principal);
    const { driver, clock } = context.engine;
    const claims = parts.map(({ claim }) => claim);
    const sentAt = clock.now();
    const answers = await this.#renewParts(context, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    const loss = findLoss(answers);
    if (loss !== null) return loss;
    // this client has the claim now, and the end of its connection would be the end of the claim
    if (driver.detach !== undefined) {
      const detach = driver.detach.bind(driver);
      const results = await this.#store.call(context, () => detach(claims));
      if (results.includes(false)) return unknownOutcome();
    }
    const remainingMs = Math.min(...answers.map((answer) => (answer.state === "held" ? answer.remainingMs : 0)));
    for (const { id } of claims) this.#register.onRenewed(id, sentAt + remainingMs);
    return heldOutcome(sentAt + remainingMs, clock.now(), first.claim, first.token);
  }

  /**
   * Releases the claims of a reference, waiting or held. The outcome "held" means that they were until now.
   * @throws RequestError
   */
  async release(principal: Principal, reference: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = reference as readonly [DetachedClaim];
    const granted = this.#places.grantedClaim(principal, first.claim.id);
    const parts = granted === null ? reference : [{ ...first, claim: granted }];
    const held: ClaimOutcome = { state: "held", claim: first.claim, token: first.token, remainingMs: 0 };
    const place = this.#places.find(principal, first.claim.id);
    if (place === null) return unknownOutcome();
    const context = await this.#store.open(principal);
    if (place !== undefined) {
      const isReleased = await this.#store.call(context, () => place.withdraw("released"));
      return isReleased ? held : unknownOutcome();
    }
    const { driver } = context.engine;
    const answers = await this.#currentAnswers(context, principal, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    // released even if it was revoked: a revoked claim keeps its queue entry until then
    const releases = parts.map(({ claim }) => ({ claim, hasUnansweredClaim: false }));
    const results = await this.#store.call(context, () => driver.release(releases));
    const loss = findLoss(answers);
    for (const { claim } of parts)
      this.#register.onEnd(claim.id, loss === null ? "released" : LOSS_EVENTS[loss.reason]);
    if (loss !== null) return loss;
    return results.includes(false) ? unknownOutcome() : held;
  }

  /** The answers for the parts; empty if they cannot be known and are not needed. */
  async #currentAnswers(
    context: ClientContext,
    principal: Principal,
    parts: readonly DetachedClaim[],
  ): Promise<readonly Answer[]> {
    // A renewal of a session claim would move it to the session of this client. An account that may not renew its lock
    // any more may still release it.
    if (parts.some(({ claim }) => claim.ttlMs === "session" || !canAcquire(principal, claim))) return [];
    try {
      return await this.#renewParts(context, parts);
    } catch (error) {
      // during recovery the server does not know yet which claims are held, so a release counts as valid
      if (error instanceof RequestError && error.code === "RECLAIMING") return [];
      throw error;
    }
  }

  async #renewParts(context: ClientContext, parts: readonly DetachedClaim[]): Promise<readonly Answer[]> {
    const { driver } = context.engine;
    const claims = parts.map(({ claim }) => claim);
    try {
      const answers = await this.#store.call(context, () => driver.renew(claims));
      return answers.map((answer) => {
        if (answer === undefined) throw this.#store.unknownError();
        return answer;
      });
    } finally {
      // what the driver keeps for the claims of a client is of no use here
      for (const claim of claims) driver.forget?.(claim);
    }
  }
}

/** Why one of the claims is no longer held or waiting; null: all of them are. */
function findLoss(answers: readonly Answer[]): LostOutcome | null {
  for (const answer of answers) {
    if (answer.state === "none") return { state: "none", reason: answer.reason ?? "unknown" };
  }
  return null;
}

/** Does one of the claims have another token than the reference, and so another grant? */
function isDifferentGrant(answers: readonly Answer[], parts: readonly DetachedClaim[]): boolean {
  return answers.some((answer, index) => {
    const { firstToken } = parts[index] as DetachedClaim;
    // the reference of a waiting claim has no token
    return answer.state === "held" && firstToken !== 0n && answer.token !== firstToken;
  });
}
