/** Limits on the number of claims. A full server refuses new claims; renewals and releases of existing ones go on. */

import type { LockTable } from "../../lock-table/table.ts";
import type { Claim } from "../../spi/driver.ts";
import type { ClaimLimits } from "../limits.ts";
import { widestLimits } from "../limits.ts";
import { RequestError } from "../request-error.ts";
import type { Session } from "../session/session.ts";

/**
 * Of all claims so many may wait. When a few keys are stuck and the requests for them pile up, there is still room for
 * locks on all others.
 */
const MAX_WAITERS = 100_000;

/** Counts what the table does not count. */
export class ClaimQuotas {
  readonly #limits: ClaimLimits;
  /** The limits of earlier runs, where they were wider: claims granted under them may be reclaimed. */
  readonly #formerLimits: ClaimLimits;
  readonly #maxWaiters: number;
  /** Number of keys in the claims of each account. */
  readonly #keysByAccount = new Map<string, number>();
  /** Number of keys in all claims: the cost of a claim grows with them. */
  #keyCount = 0;

  constructor(limits: ClaimLimits, formerLimits: ClaimLimits = limits, maxWaiters: number = MAX_WAITERS) {
    this.#limits = limits;
    this.#maxWaiters = maxWaiters;
    this.#formerLimits = widestLimits(limits, formerLimits);
  }

  /** Counts a new claim of that account. */
  add(account: string, { locks }: Claim): void {
    this.#keyCount += locks.length;
    if (account !== "") this.#keysByAccount.set(account, (this.#keysByAccount.get(account) ?? 0) + locks.length);
  }

  remove(account: string, { locks }: Claim): void {
    this.#keyCount -= locks.length;
    if (account === "") return;
    const remaining = (this.#keysByAccount.get(account) ?? 0) - locks.length;
    if (remaining > 0) this.#keysByAccount.set(account, remaining);
    else this.#keysByAccount.delete(account);
  }

  /** @throws RequestError if the claim exceeds a quota and is new */
  check(table: LockTable, session: Session, claim: Claim): void {
    const { claims, claimsPerAccount, waitersPerKey } = this.#limits;
    const keyCount = this.#keyCount + claim.locks.length;
    // the usual case: the server is far below every limit
    if (keyCount < waitersPerKey && keyCount < claimsPerAccount && keyCount < claims && keyCount < this.#maxWaiters)
      return;
    const exceeded = this.#exceededQuota(table, session, claim);
    if (exceeded !== null && !table.records.has(claim.id)) throw new RequestError("LIMIT", `at most ${exceeded}`);
  }

  /**
   * The limit that a reclaimed claim exceeds; null: none. A queue that is full of waiting claims has room for as many
   * holders, because a holder that cannot reclaim has lost its lock.
   */
  exceededOnReclaim(table: LockTable, session: Session, claim: Claim, isHeld: boolean): string | null {
    if (table.records.has(claim.id)) return null;
    const { waitersPerKey } = this.#formerLimits;
    const exceeded = this.exceededCount(claim, session, this.#formerLimits);
    const exceededQueue = this.#exceededQueue(table, claim, isHeld ? 2 * waitersPerKey : waitersPerKey);
    return exceeded ?? exceededQueue ?? (isHeld ? null : this.#exceededWaiters(table));
  }

  /** The limit that the claim exceeds, by the number of claims; null: none. */
  exceededCount({ locks }: Claim, session: Session, limits: ClaimLimits = this.#limits): string | null {
    const { name: account } = session.principal;
    const { claims, claimsPerAccount } = limits;
    if (this.#keyCount + locks.length > claims) return `${claims} claims on this server${formatPerKey(locks)}`;
    // a server without accounts bounds each client instead; a part of the server has the claims of many
    if (account === "") {
      const isFull = !session.isInProcess && session.records.size >= claimsPerAccount;
      return isFull ? `${claimsPerAccount} claims of one client` : null;
    }
    if ((this.#keysByAccount.get(account) ?? 0) + locks.length > claimsPerAccount) {
      return `${claimsPerAccount} claims of one account${formatPerKey(locks)}`;
    }
    return null;
  }

  #exceededQuota(table: LockTable, session: Session, claim: Claim): string | null {
    const exceeded = this.exceededCount(claim, session);
    if (exceeded !== null) return exceeded;
    // a claim that does not wait leaves no entry unless it is granted
    if (!claim.wait)
      return table.canAdmitNow(claim) ? this.#exceededQueue(table, claim, this.#limits.waitersPerKey) : null;
    // it might be granted at once, but a server this full is better off without it
    return this.#exceededQueue(table, claim, this.#limits.waitersPerKey) ?? this.#exceededWaiters(table);
  }

  #exceededQueue({ queues }: LockTable, { locks }: Claim, maxEntries: number): string | null {
    const isFull = locks.some(({ key }) => (queues.get(key)?.entries.size ?? 0) >= maxEntries);
    return isFull ? `${this.#limits.waitersPerKey} entries in the queue of a key` : null;
  }

  #exceededWaiters({ waitingCount }: LockTable): string | null {
    return waitingCount >= this.#maxWaiters ? `${this.#maxWaiters} waiting claims on this server` : null;
  }
}

function formatPerKey(locks: Claim["locks"]): string {
  return locks.length === 1 ? "" : `, counting each of its ${locks.length} keys`;
}
