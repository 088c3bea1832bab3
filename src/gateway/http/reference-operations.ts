/** Renews and releases claims by reference. The claim may have been made over HTTP or by any other client. */

import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import type { Answer } from "../../spi/driver.ts";
import type { Principal } from "../../auth/access-control.ts";
import { authorizeAcquire, canAcquire } from "../../auth/authorize.ts";
import { RequestError } from "../../server/request-error.ts";
import type { LockService } from "../../server/service.ts";
import type { ClaimOutcome, PendingClaims } from "./pending-claims.ts";
import { callBackend, heldOutcome, PendingClaim, renewAll, unknownOutcome } from "./pending-claims.ts";

type LostOutcome = ClaimOutcome & { readonly state: "none" };

export class ReferenceOperations {
  readonly #service: LockService;
  readonly #pendingClaims: PendingClaims;

  constructor(service: LockService, pendingClaims: PendingClaims) {
    this.#service = service;
    this.#pendingClaims = pendingClaims;
  }

  /** Renews the leases of a reference. */
  async renew(principal: Principal, parts: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = parts as readonly [DetachedClaim];
    const { backend, calls, clock } = this.#service;
    for (const { claim } of parts) authorizeAcquire(principal, claim);
    const pending = new PendingClaim(principal, first.claim, clock.now());
    const answers = await this.#renewParts(pending, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    const loss = findLoss(answers);
    if (loss !== null) return loss;
    // the claim belonged to a session of its holder: detach it, or it would end with the session of this request
    if (backend.hasClaims(pending.session)) {
      const ids = parts.map(({ claim }) => claim.id);
      const results = await callBackend(this.#service, () => calls.detach(pending.session, ids));
      if (results.includes(false)) return unknownOutcome();
    }
    const remainingMs = Math.min(...answers.map((answer) => (answer.state === "held" ? answer.remainingMs : 0)));
    return heldOutcome(pending.lastCallAt + remainingMs, clock.now(), first.claim, first.token);
  }

  /** Releases the claims of a reference, waiting or held. The outcome "held" means that they were until now. */
  async release(principal: Principal, parts: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = parts as readonly [DetachedClaim];
    const { calls, clock } = this.#service;
    const existing = this.#pendingClaims.find(principal, first.claim.id);
    if (existing === null) return unknownOutcome();
    const pending = existing ?? new PendingClaim(principal, first.claim, clock.now());
    const answers = await this.#currentAnswers(pending, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    // released even if it was revoked: a revoked claim keeps its queue entry until then
    const items = parts.map(({ claim }) => ({ id: claim.id, unansweredTtl: undefined }));
    const results = await callBackend(this.#service, () => calls.release(pending.session, items));
    if (existing !== undefined) this.#pendingClaims.remove(existing, "released");
    const loss = findLoss(answers);
    if (loss !== null) return loss;
    if (results.includes(false)) return unknownOutcome();
    return { state: "held", claim: first.claim, token: first.token, remainingMs: 0 };
  }

  /** The answers for the parts; empty if they cannot be known and are not needed. */
  async #currentAnswers(pending: PendingClaim, parts: readonly DetachedClaim[]): Promise<readonly Answer[]> {
    // A renewal of a session claim would move it to the session of this request. An account that may not renew its lock any more
    // may still release it.
    const { principal } = pending.session;
    if (parts.some(({ claim }) => claim.ttlMs === "session" || !canAcquire(principal, claim))) return [];
    try {
      return await this.#renewParts(pending, parts);
    } catch (error) {
      // during recovery the server does not know yet which claims are held, so a release counts as valid
      if (error instanceof RequestError && error.code === "RECLAIMING") return [];
      throw error;
    }
  }

  async #renewParts(pending: PendingClaim, parts: readonly DetachedClaim[]): Promise<readonly Answer[]> {
    pending.lastCallAt = this.#service.clock.now();
    const claims = parts.map(({ claim }) => claim);
    return renewAll(this.#service, pending.session, claims);
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
