/**
 * The calls of clients, with authorization. A client sees and changes only what its account created and its rules
 * allow. A claim of another account is treated as missing: a client gets an error only where the answer depends on its
 * rules alone. Its own claim on a key that it may not acquire any more counts as revoked.
 */

import type { AccessControl, Principal } from "../../auth/access-control.ts";
import { ANONYMOUS, ownsClaim } from "../../auth/access-control.ts";
import { authorize, authorizeAcquire, canAcquire } from "../../auth/authorize.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListQuery, Page } from "../../spi/driver.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { Backend, ClientCalls, ReleaseRequest, RenewRequest, RevokeRequest } from "./backend.ts";
import type { Session } from "./session.ts";

const NONE: Answer = { state: "none" };
const REVOKED: Answer = { state: "none", reason: "revoked" };

/**
 * The calls of clients to the backend, with authorization; on a server without credentials those of the backend itself.
 */
export function authorizeCalls(backend: Backend, access: AccessControl): ClientCalls {
  return access.isRequired ? new AuthorizedCalls(backend) : backend;
}

class AuthorizedCalls implements ClientCalls {
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  claim(session: Session, claim: Claim): MaybePromise<Answer> {
    const { principal } = session;
    if (principal !== ANONYMOUS) {
      authorizeAcquire(principal, claim);
      // the store continues with the claim that it knows by this id, whatever keys the request names
      const refusal = this.#refusal(principal, claim.id, null);
      if (refusal !== null) return refusal;
    }
    return this.#backend.claim(session, claim);
  }

  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]> {
    const refuse = ({ id, claim }: RenewRequest): Answer | null => this.#refusal(session.principal, id, claim);
    // During recovery answer as if the claim were unreported, so the answer does not reveal that another account has
    // reclaimed it.
    const isRecovering = this.#backend.recoveryRemainingMs() > 0;
    const toAnswer = (refusal: Answer): Answer | undefined => (refusal === NONE && isRecovering ? undefined : refusal);
    return filterBatch(items, refuse, toAnswer, (allowed) => this.#backend.renew(session, allowed));
  }

  /** A client may release the claims that it created, whatever its rules say now. */
  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]> {
    const refuse = ({ id }: ReleaseRequest): Answer | null => (this.#isForeign(session.principal, id) ? NONE : null);
    // During recovery the answer for an unreported claim is `true`, so it must be the same for a claim that another
    // account has reclaimed.
    const isReleased = this.#backend.recoveryRemainingMs() > 0;
    return filterBatch(
      items,
      refuse,
      () => isReleased,
      (allowed) => this.#backend.release(session, allowed),
    );
  }

  detach(session: Session, ids: readonly ClaimId[], remainingMs?: number): MaybePromise<readonly boolean[]> {
    const refuse = (id: ClaimId): Answer | null => this.#refusal(session.principal, id, null);
    return filterBatch(
      ids,
      refuse,
      () => false,
      (allowed) => this.#backend.detach(session, allowed, remainingMs),
    );
  }

  setSuspended(session: Session, ids: readonly ClaimId[], isSuspended: boolean): void {
    this.#backend.setSuspended(session, ids, isSuspended);
  }

  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]> {
    authorize(
      session.principal,
      "revoke",
      targets.map(({ key }) => key),
    );
    return this.#backend.revoke(session, targets);
  }

  list(session: Session, filter: ListQuery, max: number, cursor: string | undefined): MaybePromise<Page<ClaimView>> {
    return this.#backend.list(session, filter, max, cursor);
  }

  /** Always forwarded, even if no items are left, because the backend waits for the last call. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
  ): MaybePromise<readonly (Answer | undefined)[]> {
    const refuse = ({ claim }: ReclaimItem): Answer | null => this.#refusal(session.principal, claim.id, claim);
    return filterBatch(
      items,
      refuse,
      (refusal) => refusal,
      (allowed) => this.#backend.reclaim(session, allowed, isLast),
      true,
    );
  }

  /**
   * The answer for a claim that the principal may not use; null: it may. One that the store does not know, or not yet,
   * is judged by its keys.
   * @param claim as it was sent; null: by its id only
   */
  #refusal(principal: Principal, id: ClaimId, claim: Claim | null): Answer | null {
    // first, since this depends on the rules alone
    if (claim !== null && !canAcquire(principal, claim)) return REVOKED;
    if (this.#isForeign(principal, id)) return NONE;
    const owned = this.#backend.findClaim(id);
    return owned === undefined || canAcquire(principal, owned.claim) ? null : REVOKED;
  }

  /** Did another account place the claim? */
  #isForeign(principal: Principal, id: ClaimId): boolean {
    const owned = this.#backend.findClaim(id);
    return owned !== undefined && !ownsClaim(owned.account, principal);
  }
}

/** The results of a call for the items that are not refused, with those of the refusals in the places of the others. */
function filterBatch<T, R>(
  items: readonly T[],
  refuse: (item: T) => Answer | null,
  toResult: (refusal: Answer) => R,
  call: (allowed: readonly T[]) => MaybePromise<readonly R[]>,
  callsWhenEmpty = false,
): MaybePromise<readonly R[]> {
  const refusals = items.map(refuse);
  const allowed = items.filter((_, index) => refusals[index] === null);
  if (allowed.length === items.length) return call(items);
  const mergeResults = (results: readonly R[]): readonly R[] => {
    let nextResult = 0;
    return refusals.map((refusal) => (refusal === null ? (results[nextResult++] as R) : toResult(refusal)));
  };
  if (allowed.length === 0 && !callsWhenEmpty) return mergeResults([]);
  const results = call(allowed);
  return results instanceof Promise ? results.then(mergeResults) : mergeResults(results);
}
