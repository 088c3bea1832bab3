/**
 * The calls of clients, with authorization. A client sees and changes only what its account created and its rules allow.
 * A claim that it may not use is treated as missing: it gets an error only where the answer depends on its rules alone.
 */

import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListQuery, Page } from "../../spi/driver.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { AccessControl, Principal } from "../auth/access-control.ts";
import { ANONYMOUS, ownsClaim } from "../auth/access-control.ts";
import { authorize } from "../auth/authorize.ts";
import type { Backend, ClientCalls, ReleaseRequest, RenewRequest, RevokeRequest } from "./backend.ts";
import type { Session } from "./session.ts";

const NONE: Answer = { state: "none" };

/** The calls of clients to the backend, with authorization; on a server without credentials those of the backend itself. */
export function authorizeCalls(backend: Backend, access: AccessControl): ClientCalls {
  return access.isRequired ? new AuthorizedCalls(backend) : backend;
}

/** True if the principal may acquire all keys of the claim. */
function canAcquire(principal: Principal, claim: Claim): boolean {
  return claim.locks.every(({ key }) => principal.can("acquire", key));
}

class AuthorizedCalls implements ClientCalls {
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  claim(session: Session, claim: Claim): MaybePromise<Answer> {
    const { principal } = session;
    if (principal !== ANONYMOUS) {
      authorize(
        principal,
        "acquire",
        claim.locks.map(({ key }) => key),
      );
      const existing = this.#backend.findClaim(claim.id);
      // the store continues with the claim that it knows by this id, whatever keys the request names
      if (existing !== undefined && !this.#canUse(principal, claim.id, null)) return NONE;
    }
    return this.#backend.claim(session, claim);
  }

  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]> {
    const canUse = (item: RenewRequest): boolean => this.#canUse(session.principal, item.id, item.claim);
    // During recovery answer as if the claim were unreported, so the answer does not reveal that another account has
    // reclaimed it.
    const fallback = this.#backend.recoveryRemainingMs() > 0 ? undefined : NONE;
    return filterBatch(items, canUse, fallback, (allowed) => this.#backend.renew(session, allowed));
  }

  /** A client may release the claims that it created, whatever its rules say now. */
  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]> {
    const hasPlaced = ({ id }: ReleaseRequest): boolean => this.#hasPlaced(session.principal, id);
    // During recovery the answer for an unreported claim is `true`, so it must be the same for a claim that another
    // account has reclaimed.
    return filterBatch(items, hasPlaced, this.#backend.recoveryRemainingMs() > 0, (allowed) =>
      this.#backend.release(session, allowed),
    );
  }

  detach(session: Session, ids: readonly ClaimId[], remainingMs?: number): MaybePromise<readonly boolean[]> {
    const canUse = (id: ClaimId): boolean => this.#canUse(session.principal, id, null);
    return filterBatch(ids, canUse, false, (allowed) => this.#backend.detach(session, allowed, remainingMs));
  }

  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]> {
    authorize(
      session.principal,
      "force",
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
    const canUse = ({ claim }: ReclaimItem): boolean => this.#canUse(session.principal, claim.id, claim);
    return filterBatch(items, canUse, NONE, (allowed) => this.#backend.reclaim(session, allowed, isLast), true);
  }

  /**
   * True if the principal may use the claim. One that the store does not know, or not yet, is judged by its keys.
   * @param claim as it was sent; null: by its id only
   */
  #canUse(principal: Principal, id: ClaimId, claim: Claim | null): boolean {
    const owned = this.#backend.findClaim(id);
    if (owned === undefined) return claim === null || canAcquire(principal, claim);
    return ownsClaim(owned.account, principal) && canAcquire(principal, owned.claim);
  }

  #hasPlaced(principal: Principal, id: ClaimId): boolean {
    const owned = this.#backend.findClaim(id);
    return owned === undefined || ownsClaim(owned.account, principal);
  }
}

/** The results of a call for the allowed items, with `fallback` in the places of the others. */
function filterBatch<T, R>(
  items: readonly T[],
  predicate: (item: T) => boolean,
  fallback: R,
  call: (allowed: readonly T[]) => MaybePromise<readonly R[]>,
  callsWhenEmpty = false,
): MaybePromise<readonly R[]> {
  const flags = items.map(predicate);
  if (!flags.includes(false)) return call(items);
  const allowed = items.filter((_, index) => flags[index]);
  if (allowed.length === 0 && !callsWhenEmpty) return items.map(() => fallback);
  const mergeResults = (results: readonly R[]): readonly R[] => {
    let nextResult = 0;
    return flags.map((isAllowed) => (isAllowed ? (results[nextResult++] as R) : fallback));
  };
  const results = call(allowed);
  return results instanceof Promise ? results.then(mergeResults) : mergeResults(results);
}
