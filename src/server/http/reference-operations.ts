/** What may be done with a reference: whoever has it holds the lock, over HTTP or by another way. */

import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import type { Answer } from "../../spi/driver.ts";
import type { Principal } from "../auth/access-control.ts";
import { RequestError } from "../backend.ts";
import type { LockService } from "../service.ts";
import { callBackend, PendingClaim, renewAll } from "./pending-claim.ts";
import type { ClaimOutcome, PendingClaims } from "./pending-claims.ts";
import { heldOutcome, unknownOutcome } from "./pending-claims.ts";

type LostOutcome = ClaimOutcome & { readonly state: "none" };

export class ReferenceOperations {
  readonly #service: LockService;
  readonly #pendingClaims: PendingClaims;

  constructor(service: LockService, pendingClaims: PendingClaims) {
    this.#service = service;
    this.#pendingClaims = pendingClaims;
  }

  /** Restarts the leases of a reference. */
  async renew(principal: Principal, parts: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = parts as readonly [DetachedClaim];
    const { backend, clock } = this.#service;
    const pending = new PendingClaim(principal, first.claim, clock.now());
    const answers = await this.#renewParts(pending, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    const loss = findLoss(answers);
    if (loss !== null) return loss;
    // whoever held it by a session of its own has given the reference away
    if (backend.hasClaims(pending.session)) {
      const ids = parts.map(({ claim }) => claim.id);
      const results = await callBackend(this.#service, () => backend.detach(pending.session, ids));
      if (results.includes(false)) return unknownOutcome();
    }
    const leftMs = Math.min(...answers.map((answer) => (answer.state === "held" ? answer.ttlMs : 0)));
    return heldOutcome(pending.lastCallAt + leftMs, clock.now(), first.claim, first.token);
  }

  /** Gives back what a reference stands for, waiting or held. "held" means that it was, until now. */
  async release(principal: Principal, parts: readonly DetachedClaim[]): Promise<ClaimOutcome> {
    const [first] = parts as readonly [DetachedClaim];
    const { backend, clock } = this.#service;
    const existing = this.#pendingClaims.find(principal, first.claim.id);
    if (existing === null) return unknownOutcome();
    const pending = existing ?? new PendingClaim(principal, first.claim, clock.now());
    const answers = await this.#currentAnswers(pending, parts);
    if (isDifferentGrant(answers, parts)) return unknownOutcome();
    // a revoked claim keeps its place until it is released
    const items = parts.map(({ claim }) => ({ id: claim.id, unansweredTtl: undefined }));
    const results = await callBackend(this.#service, () => backend.release(pending.session, items));
    if (existing !== undefined) this.#pendingClaims.remove(existing, "released");
    const loss = findLoss(answers);
    // an account that may not renew any more may still give back what it placed
    const isLost = loss !== null && (loss.reason !== "unknown" || results.includes(false));
    if (isLost) return loss;
    if (results.includes(false)) return unknownOutcome();
    return { state: "held", claim: first.claim, token: first.token, ttlMs: 0 };
  }

  /** Where the parts stand; nothing if that cannot be known, and need not be. */
  async #currentAnswers(pending: PendingClaim, parts: readonly DetachedClaim[]): Promise<readonly Answer[]> {
    // asking for a session's claim would make it ours
    if (parts.some(({ claim }) => claim.ttlMs === "session")) return [];
    try {
      return await this.#renewParts(pending, parts);
    } catch (error) {
      // while the server learns who held what, a release is taken as said (design A.15)
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

/** Why these are not held, or waiting, any more; null: they are. */
function findLoss(answers: readonly Answer[]): LostOutcome | null {
  for (const answer of answers) {
    if (answer.state === "none") return { state: "none", reason: answer.reason ?? "unknown" };
  }
  return null;
}

/** Is one of them held by another grant than the reference says? */
function isDifferentGrant(answers: readonly Answer[], parts: readonly DetachedClaim[]): boolean {
  return answers.some((answer, index) => {
    const { firstToken } = parts[index] as DetachedClaim;
    // a place that waited when its reference was made had no token yet
    return answer.state === "held" && firstToken !== 0n && answer.token !== firstToken;
  });
}
