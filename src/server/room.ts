/** How many claims there may be. What is full refuses new ones; renewals and releases of those that are there go on. */

import type { Entry } from "../core/entry.ts";
import type { Happening, Observer } from "../core/observer.ts";
import type { Table } from "../core/table.ts";
import type { Claim } from "../spi/driver.ts";
import { Refusal } from "./backend.ts";
import type { ClaimBounds } from "./limits.ts";
import { widest } from "./limits.ts";
import type { Session } from "./session.ts";

/** Counts what the table does not, and passes on what it is told. */
export class Room implements Observer {
  readonly #limits: ClaimBounds;
  /** Those of the starts before, where they were wider: what was held under them may come back. */
  readonly #former: ClaimBounds;
  readonly #next: Observer | null;
  /** Keys of the claims of each account. */
  readonly #accounts = new Map<string, number>();
  /** Keys of all claims: what a claim costs grows with them. */
  #keys = 0;
  #held = 0;

  constructor(limits: ClaimBounds, next: Observer | null, former: ClaimBounds = limits) {
    this.#limits = limits;
    this.#former = widest(limits, former);
    this.#next = next;
  }

  happened(what: Happening, entry: Entry, now: number): void {
    if (what === "granted" || what === "reclaimed") this.#held++;
    else if (entry.held && ENDS.has(what)) this.#held--;
    this.#next?.happened(what, entry, now);
  }

  /** A claim of that account has come. */
  add(account: string, { holds }: Claim): void {
    this.#keys += holds.length;
    if (account !== "") this.#accounts.set(account, (this.#accounts.get(account) ?? 0) + holds.length);
  }

  remove(account: string, { holds }: Claim): void {
    this.#keys -= holds.length;
    if (account === "") return;
    const left = (this.#accounts.get(account) ?? 0) - holds.length;
    if (left > 0) this.#accounts.set(account, left);
    else this.#accounts.delete(account);
  }

  /** @throws Refusal if there is no room for this claim, unless it is there already */
  check(table: Table, session: Session, claim: Claim): void {
    const limits = this.#limits;
    const keys = this.#keys + claim.holds.length;
    // nearly always: neither the server nor the session comes near any bound
    if (keys < limits.waitersPerKey && keys < limits.claimsPerSession && keys < limits.claimsPerAccount) {
      if (keys < limits.claims && keys < limits.waiters) return;
    }
    const what = this.#full(table, session, claim);
    if (what !== null && !table.entries.has(claim.id)) throw new Refusal("LIMIT", `at most ${what}`);
  }

  /**
   * Which bound a claim does not fit into that its client tells of after a restart; null: none. In a line that is full of
   * waiting claims there is room for as many holders: a holder that cannot come back has lost its lock.
   */
  crowdedBack(table: Table, session: Session, claim: Claim, isHeld: boolean): string | null {
    if (table.entries.has(claim.id)) return null;
    const { waitersPerKey, waiters } = this.#former;
    const crowd = this.crowd(claim, session.entries.size, session.principal.name, this.#former);
    const line = this.#longLine(table, claim, isHeld ? 2 * waitersPerKey : waitersPerKey);
    return crowd ?? line ?? (isHeld ? null : this.#waiting(table, waiters));
  }

  /** Which bound the claim does not fit into, with so many claims of its session; null: none. */
  crowd({ holds }: Claim, ofSession: number, account: string, limits: ClaimBounds = this.#limits): string | null {
    const { claims, claimsPerSession, claimsPerAccount } = limits;
    if (this.#keys + holds.length > claims) return `${claims} claims on this server${each(holds)}`;
    if (ofSession >= claimsPerSession) return `${claimsPerSession} claims of one client`;
    if (account !== "" && (this.#accounts.get(account) ?? 0) + holds.length > claimsPerAccount) {
      return `${claimsPerAccount} claims of one account${each(holds)}`;
    }
    return null;
  }

  #full(table: Table, session: Session, claim: Claim): string | null {
    const crowd = this.crowd(claim, session.entries.size, session.principal.name);
    if (crowd !== null) return crowd;
    // who asks once leaves no place, unless it is granted
    if (!claim.wait) return table.isFree(claim) ? this.#longLine(table, claim, this.#limits.waitersPerKey) : null;
    // it might be granted at once, but a server so full had better stay out of it
    return this.#longLine(table, claim, this.#limits.waitersPerKey) ?? this.#waiting(table, this.#limits.waiters);
  }

  #longLine({ mint }: Table, { holds }: Claim, most: number): string | null {
    const isLong = holds.some(({ key }) => (mint.lines.get(key)?.seats.size ?? 0) >= most);
    return isLong ? `${this.#limits.waitersPerKey} places in the line of a key` : null;
  }

  #waiting({ entries }: Table, waiters: number): string | null {
    return entries.size - this.#held >= waiters ? `${waiters} waiting claims on this server` : null;
  }
}

const ENDS: ReadonlySet<Happening> = new Set(["released", "expired", "gone", "removed"]);

function each(holds: Claim["holds"]): string {
  return holds.length === 1 ? "" : `, each of its ${holds.length} keys counted`;
}
