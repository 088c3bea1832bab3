/**
 * Rights in front of a store: a credential sees and touches only what its account placed and its rules allow. What it may
 * not touch answers as what is not there; only where the answer depends on the rules alone is it told that it may not.
 */

import type { Reclaimed } from "../protocol/frames.ts";
import type { StateName } from "../protocol/hello.ts";
import type { Answer, Claim, ClaimId, ListFilter, Traits } from "../spi/driver.ts";
import type { Access, Principal } from "./access.ts";
import { ANYBODY, answersTo } from "./access.ts";
import type { Backend, Leave, Owned, Page, Renewal, Revocation, Soon, Which } from "./backend.ts";
import { Refusal } from "./backend.ts";
import type { Session } from "./session.ts";

const NONE: Answer = { state: "none" };

/** The backend as its clients may use it: itself where nobody is asked for a credential. */
export function guarded(backend: Backend, access: Access): Backend {
  return access.required ? new Guard(backend) : backend;
}

/** May it acquire all keys of the claim? */
function mayAcquire(principal: Principal, claim: Claim): boolean {
  return claim.holds.every(({ key }) => principal.may("acquire", key));
}

class Guard implements Backend {
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  claim(session: Session, claim: Claim): Soon<Answer> {
    const { principal } = session;
    if (principal !== ANYBODY) {
      if (!mayAcquire(principal, claim)) {
        throw new Refusal("FORBIDDEN", "this credential may not acquire every key of this claim");
      }
      const owned = this.#backend.owned(claim.id);
      // the store goes on with the claim it knows by this id, whatever keys are named now
      if (owned !== undefined && !this.#isMine(principal, claim.id, null)) return NONE;
    }
    return this.#backend.claim(session, claim);
  }

  renew(session: Session, items: readonly Renewal[]): Soon<readonly (Answer | undefined)[]> {
    const mine = (item: Renewal): boolean => this.#isMine(session.principal, item.id, item.claim);
    // as long as clients tell what they hold: as if nobody had told of it yet, so that it cannot be seen that somebody has
    const instead = this.#backend.reclaimMs() > 0 ? undefined : NONE;
    return passed(items, mine, instead, (allowed) => this.#backend.renew(session, allowed));
  }

  /** What it placed it may give back, whatever its rules say by now. */
  release(session: Session, items: readonly Leave[]): Soon<readonly boolean[]> {
    const placed = ({ id }: Leave): boolean => this.#hasPlaced(session.principal, id);
    // while clients tell what they hold, what nobody has told of is answered `true`: what another has told of, too
    return passed(items, placed, this.#backend.reclaimMs() > 0, (allowed) => this.#backend.release(session, allowed));
  }

  detach(session: Session, ids: readonly ClaimId[], leftMs?: number): Soon<readonly boolean[]> {
    const mine = (id: ClaimId): boolean => this.#isMine(session.principal, id, null);
    return passed(ids, mine, false, (allowed) => this.#backend.detach(session, allowed, leftMs));
  }

  revoke(session: Session, targets: readonly Revocation[]): Soon<readonly boolean[]> {
    if (!targets.every(({ key }) => session.principal.may("force", key))) {
      throw new Refusal("FORBIDDEN", "this credential may not revoke what others hold of every one of these keys");
    }
    return this.#backend.revoke(session, targets);
  }

  list(session: Session, filter: ListFilter, max: number, after: string | undefined): Soon<Page> {
    return this.#backend.list(session, filter, max, after);
  }

  /** Always passed on, were it empty: the store waits for the last one. */
  reclaim(session: Session, items: readonly Reclaimed[], last: boolean): Soon<readonly (Answer | undefined)[]> {
    const mine = ({ claim }: Reclaimed): boolean => this.#isMine(session.principal, claim.id, claim);
    return passed(items, mine, NONE, (allowed) => this.#backend.reclaim(session, allowed, last), true);
  }

  /**
   * May it go on with this claim? One that the store does not know, or not yet, is as good as its keys.
   * @param claim as it was sent; null: by its id alone
   */
  #isMine(principal: Principal, id: ClaimId, claim: Claim | null): boolean {
    const owned = this.#backend.owned(id);
    if (owned === undefined) return claim === null || mayAcquire(principal, claim);
    return answersTo(owned.by, principal) && mayAcquire(principal, owned.claim);
  }

  #hasPlaced(principal: Principal, id: ClaimId): boolean {
    const owned = this.#backend.owned(id);
    return owned === undefined || answersTo(owned.by, principal);
  }

  // the rest concerns nobody's rights
  get isOurs(): boolean {
    return this.#backend.isOurs;
  }
  attend(changed: () => void): void {
    this.#backend.attend(changed);
  }
  traits(local: boolean): Traits {
    return this.#backend.traits(local);
  }
  reclaimMs(): number {
    return this.#backend.reclaimMs();
  }
  get identity(): StateName | null {
    return this.#backend.identity ?? null;
  }
  outdated(): void {
    this.#backend.outdated?.();
  }
  owned(id: ClaimId): Owned | undefined {
    return this.#backend.owned(id);
  }
  arrivalOf(id: ClaimId): number {
    return this.#backend.arrivalOf(id);
  }
  end(session: Session, which: Which): void {
    this.#backend.end(session, which);
  }
  park(session: Session): void {
    this.#backend.park(session);
  }
  unpark(session: Session): void {
    this.#backend.unpark(session);
  }
  owns(session: Session): boolean {
    return this.#backend.owns(session);
  }
  nextDue(): number {
    return this.#backend.nextDue();
  }
  advance(now: number): void {
    this.#backend.advance(now);
  }
  begin(): void {
    this.#backend.begin?.();
  }
  settle(): void {
    this.#backend.settle();
  }
}

/** The results of a call for those items that are allowed, and `instead` in the places of the others. */
function passed<T, R>(
  items: readonly T[],
  allows: (item: T) => boolean,
  instead: R,
  call: (allowed: readonly T[]) => Soon<readonly R[]>,
  always = false,
): Soon<readonly R[]> {
  const flags = items.map(allows);
  if (!flags.includes(false)) return call(items);
  const allowed = items.filter((_, at) => flags[at]);
  if (allowed.length === 0 && !always) return items.map(() => instead);
  const merged = (results: readonly R[]): readonly R[] => {
    let next = 0;
    return flags.map((isAllowed) => (isAllowed ? (results[next++] as R) : instead));
  };
  const results = call(allowed);
  return results instanceof Promise ? results.then(merged) : merged(results);
}
