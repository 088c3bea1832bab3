/**
 * Rights in front of a store: a credential sees and touches only what its account placed and its rules allow. What it may
 * not touch answers as what is not there; only where the answer depends on the rules alone is it told that it may not.
 */

import type { ReclaimItem } from "../../protocol/frames.ts";
import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Answer, Claim, ClaimId, ListFilter, Traits } from "../../spi/driver.ts";
import type {
  Backend,
  ClaimPage,
  EndScope,
  MaybePromise,
  OwnedClaim,
  ReleaseRequest,
  RenewRequest,
  RevokeRequest,
} from "../backend.ts";
import { RequestError } from "../backend.ts";
import type { Session } from "../session/session.ts";
import type { AccessControl, Principal } from "./access-control.ts";
import { ANONYMOUS, ownsClaim } from "./access-control.ts";

const NONE: Answer = { state: "none" };

/** The backend as its clients may use it: itself where nobody is asked for a credential. */
export function withAuthorization(backend: Backend, access: AccessControl): Backend {
  return access.isRequired ? new AuthorizedBackend(backend) : backend;
}

/** May it acquire all keys of the claim? */
function canAcquire(principal: Principal, claim: Claim): boolean {
  return claim.holds.every(({ key }) => principal.can("acquire", key));
}

class AuthorizedBackend implements Backend {
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  claim(session: Session, claim: Claim): MaybePromise<Answer> {
    const { principal } = session;
    if (principal !== ANONYMOUS) {
      if (!canAcquire(principal, claim)) {
        throw new RequestError("FORBIDDEN", "this credential may not acquire every key of this claim");
      }
      const known = this.#backend.findClaim(claim.id);
      // the store goes on with the claim it knows by this id, whatever keys are named now
      if (known !== undefined && !this.#canUse(principal, claim.id, null)) return NONE;
    }
    return this.#backend.claim(session, claim);
  }

  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]> {
    const canUse = (item: RenewRequest): boolean => this.#canUse(session.principal, item.id, item.claim);
    // as long as clients tell what they hold: as if nobody had told of it yet, so that it cannot be seen that somebody has
    const fallback = this.#backend.recoveryRemainingMs() > 0 ? undefined : NONE;
    return filterBatch(items, canUse, fallback, (allowed) => this.#backend.renew(session, allowed));
  }

  /** What it placed it may give back, whatever its rules say by now. */
  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]> {
    const hasPlaced = ({ id }: ReleaseRequest): boolean => this.#hasPlaced(session.principal, id);
    // while clients tell what they hold, what nobody has told of is answered `true`: what another has told of, too
    return filterBatch(items, hasPlaced, this.#backend.recoveryRemainingMs() > 0, (allowed) =>
      this.#backend.release(session, allowed),
    );
  }

  detach(session: Session, ids: readonly ClaimId[], leftMs?: number): MaybePromise<readonly boolean[]> {
    const canUse = (id: ClaimId): boolean => this.#canUse(session.principal, id, null);
    return filterBatch(ids, canUse, false, (allowed) => this.#backend.detach(session, allowed, leftMs));
  }

  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]> {
    if (!targets.every(({ key }) => session.principal.can("force", key))) {
      throw new RequestError("FORBIDDEN", "this credential may not revoke locks of others on every one of these keys");
    }
    return this.#backend.revoke(session, targets);
  }

  list(session: Session, filter: ListFilter, max: number, cursor: string | undefined): MaybePromise<ClaimPage> {
    return this.#backend.list(session, filter, max, cursor);
  }

  /** Always passed on, were it empty: the store waits for the last one. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
  ): MaybePromise<readonly (Answer | undefined)[]> {
    const canUse = ({ claim }: ReclaimItem): boolean => this.#canUse(session.principal, claim.id, claim);
    return filterBatch(items, canUse, NONE, (allowed) => this.#backend.reclaim(session, allowed, isLast), true);
  }

  /**
   * May it go on with this claim? One that the store does not know, or not yet, is as good as its keys.
   * @param claim as it was sent; null: by its id alone
   */
  #canUse(principal: Principal, id: ClaimId, claim: Claim | null): boolean {
    const known = this.#backend.findClaim(id);
    if (known === undefined) return claim === null || canAcquire(principal, claim);
    return ownsClaim(known.account, principal) && canAcquire(principal, known.claim);
  }

  #hasPlaced(principal: Principal, id: ClaimId): boolean {
    const known = this.#backend.findClaim(id);
    return known === undefined || ownsClaim(known.account, principal);
  }

  // the rest concerns nobody's rights
  get isInProcess(): boolean {
    return this.#backend.isInProcess;
  }
  onChange(listener: () => void): void {
    this.#backend.onChange(listener);
  }
  traits(isLocal: boolean): Traits {
    return this.#backend.traits(isLocal);
  }
  recoveryRemainingMs(): number {
    return this.#backend.recoveryRemainingMs();
  }
  get identity(): StateEpoch | null {
    return this.#backend.identity ?? null;
  }
  reportOutdatedState(): void {
    this.#backend.reportOutdatedState?.();
  }
  findClaim(id: ClaimId): OwnedClaim | undefined {
    return this.#backend.findClaim(id);
  }
  arrivalOf(id: ClaimId): number {
    return this.#backend.arrivalOf(id);
  }
  endClaims(session: Session, scope: EndScope): void {
    this.#backend.endClaims(session, scope);
  }
  suspend(session: Session): void {
    this.#backend.suspend(session);
  }
  resume(session: Session): void {
    this.#backend.resume(session);
  }
  hasClaims(session: Session): boolean {
    return this.#backend.hasClaims(session);
  }
  nextDueAt(): number {
    return this.#backend.nextDueAt();
  }
  advance(now: number): void {
    this.#backend.advance(now);
  }
  beginBatch(): void {
    this.#backend.beginBatch?.();
  }
  endBatch(): void {
    this.#backend.endBatch();
  }
}

/** The results of a call for those items that are allowed, and `fallback` in the places of the others. */
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
    let next = 0;
    return flags.map((isAllowed) => (isAllowed ? (results[next++] as R) : fallback));
  };
  const results = call(allowed);
  return results instanceof Promise ? results.then(mergeResults) : mergeResults(results);
}
