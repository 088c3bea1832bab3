/**
 * The lock table: lines of claims by key, claims by id, leases, tokens, and grants to announce. Pure: every verb is
 * given `now` (monotonic milliseconds, for leases) and `micros` (wall clock in microseconds, for tokens only).
 *
 * Invariants
 * - A line is admitted seats, then waiting ones by arrival (core/seats.ts). A claim enters a line only when it is
 *   admitted in the line of its previous key, so who takes keys in order never deadlocks.
 * - A claim is held from the moment it is admitted in its last line and has its tokens (core/mint.ts). A grant never
 *   lengthens the lease: the client counts from what it sent, and has sent nothing.
 * - What has run out goes before anybody is admitted, so nobody is granted to a claim that has ended.
 * - While paused (a restarted server reclaiming) nobody is admitted.
 */

import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import { Endings } from "./endings.ts";
import { Entry } from "./entry.ts";
import { Leases } from "./leases.ts";
import type { Mint } from "./mint.ts";
import type { Observer } from "./observer.ts";
import { NOBODY } from "./observer.ts";
import { Seating } from "./seating.ts";
import { SlotMap } from "./slot-map.ts";
import type { Grant } from "./standing.ts";
import { standingOf } from "./standing.ts";

export interface TableOptions {
  /** What "session" claims are told as their lease, and how long their ids are remembered. Default 30 s. */
  readonly sessionMs?: number;
  /** Tokens stay below it; a grant that would reach it waits for raise(). Default: no bound. */
  readonly ceiling?: number;
  /** How many claims are remembered that have ended: of anyone, for as long as they ask. Default: all. */
  readonly mostEndings?: number;
  /** Told when a claim whose entry is marked `kept` is gone, however it ended. */
  readonly forgotten?: (entry: Entry) => void;
  /** Told of every claim's life. Default: nobody is. */
  readonly observer?: Observer;
}

export class Table {
  readonly sessionMs: number;
  readonly entries: SlotMap<ClaimId, Entry> = new SlotMap();
  readonly endings: Endings;
  readonly mint: Mint;
  readonly #leases = new Leases();
  readonly #seating: Seating;
  readonly #forgotten: (entry: Entry) => void;
  readonly #observer: Observer;
  #grants: Grant[] = [];
  #now = 0;

  constructor(options: TableOptions = {}) {
    this.sessionMs = options.sessionMs ?? 30_000;
    this.endings = new Endings(options.mostEndings);
    this.#forgotten = options.forgotten ?? (() => undefined);
    this.#observer = options.observer ?? NOBODY;
    const announce = (entry: Entry): void => this.#announce(entry);
    this.#seating = new Seating(options.ceiling ?? Number.POSITIVE_INFINITY, this.#observer, announce);
    this.mint = this.#seating.mint;
  }

  /**
   * Places the claim, or finds it and restarts its lease. `arrival`: where a claim that waited before a restart stood, else
   * 0; `by`: who places it.
   */
  claim(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, by = ""): Answer {
    const entry = this.place(claim, owner, now, micros, arrival, by);
    return entry === null ? this.endings.none(claim.id) : this.standing(entry);
  }

  /** As claim(); gives what is there now by its id, or null. */
  place(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, by = ""): Entry | null {
    this.advance(now, micros);
    const known = this.entries.get(claim.id);
    if (known !== undefined) {
      this.#extend(known, owner);
      return known;
    }
    if (this.endings.reasonOf(claim.id) !== undefined) return null;
    if (!claim.wait && !this.isFree(claim)) return null;
    const entry = this.#enroll(claim, owner, arrival, by);
    this.#seating.enter(entry);
    if (entry.held) return entry;
    if (!claim.wait) {
      this.#remove(entry); // free, but the token ceiling is in the way: no trace all the same
      return null;
    }
    this.#observer.happened("waiting", entry, now);
    return entry;
  }

  /** Would the claim be admitted everywhere if it came now? As of the time that the table was told last. */
  isFree(claim: Claim): boolean {
    return this.#seating.isFree(claim);
  }

  /** Is nothing held that keeps the claim from its keys? Those who only wait hold nothing. */
  fits(claim: Claim): boolean {
    return this.#seating.fits(claim);
  }

  /** What its client is told of an entry, at the time that the table was told last. */
  standing(entry: Entry): Answer {
    if (entry.revoked !== null) return { state: "none", reason: entry.revoked };
    return standingOf(entry, this.#now, this.sessionMs);
  }

  renew(id: ClaimId, owner: unknown, now: number, micros: number): Answer {
    this.advance(now, micros);
    const entry = this.entries.get(id);
    if (entry === undefined) return this.endings.none(id);
    this.#extend(entry, owner);
    return this.standing(entry);
  }

  /** Says whether it was there and not revoked. `unanswered`: its ttl, if a `claim` call of this id may still be on its way. */
  release(id: ClaimId, now: number, micros: number, unanswered?: number | "session"): boolean {
    this.advance(now, micros);
    if (unanswered !== undefined) this.bury(id, unanswered);
    const entry = this.entries.get(id);
    return entry !== undefined && this.leave(entry);
  }

  /** A `claim` call of this id, which is released, may still be on its way: no place is to be taken by it. */
  bury(id: ClaimId, ttlMs: number | "session"): void {
    this.endings.bury(id, "released", this.#now + this.#ttl(ttlMs));
  }

  /** As release(), of what is there at the time that the table was told last. */
  leave(entry: Entry): boolean {
    const { claim, detached, held, revoked } = entry;
    if (detached) this.endings.note(claim.id, "released", this.#now + this.#ttl(claim.ttlMs));
    this.#observer.happened(held ? "released" : "left", entry, this.#now);
    this.#remove(entry);
    return revoked === null;
  }

  /** Its client has gone: removes it, and remembers for so long that it has expired. */
  drop(id: ClaimId, forMs: number, now: number, micros: number): void {
    this.advance(now, micros);
    const entry = this.entries.get(id);
    if (entry === undefined) return;
    this.endings.note(id, "expired", now + forMs);
    this.#observer.happened("gone", entry, now);
    this.#remove(entry);
  }

  /** Takes a held claim out of its session: a plain lease from now on, the full one or `leftMs` where that is less. */
  detach(id: ClaimId, now: number, micros: number, leftMs: number = Number.POSITIVE_INFINITY): boolean {
    this.advance(now, micros);
    const entry = this.entries.get(id);
    if (entry === undefined || !entry.held || entry.revoked !== null || entry.claim.ttlMs === "session") return false;
    entry.detached = true;
    entry.owner = null;
    this.#leases.extend(entry, this.#now);
    this.#leases.shorten(entry, this.#now + leftMs);
    return true;
  }

  /** See Driver.revoke. */
  revoke(key: string, token: number, removed: boolean, now: number, micros: number): boolean {
    this.advance(now, micros);
    const entry = this.mint.lines.get(key)?.holderOf(token) ?? null;
    if (entry === null || (entry.revoked !== null && !removed)) return false;
    this.#revoke(entry, "revoked", removed);
    return true;
  }

  /** The claim has been held for longer than it may: revoked, for that reason. */
  outstayed(entry: Entry, now: number, micros: number): void {
    this.advance(now, micros);
    if (this.entries.get(entry.claim.id) === entry && entry.revoked === null) this.#revoke(entry, "maxHold", false);
  }

  #revoke(entry: Entry, reason: "revoked" | "maxHold", removed: boolean): void {
    this.endings.note(entry.claim.id, reason, this.#now + this.#ttl(entry.claim.ttlMs));
    entry.revoked = reason;
    for (const { line } of entry.seats) line.revoked(entry);
    this.#observer.happened(removed ? "removed" : reason === "revoked" ? reason : "outstayed", entry, this.#now);
    // its client need not wait for its next renewal to hear of it
    this.#grants.push({ id: entry.claim.id, owner: entry.owner, answer: { state: "none", reason } });
    if (removed) this.#remove(entry);
  }

  /** Lets time pass and ends what has run out. Every verb does so first; an owner with a timer calls it at nextDue(). */
  advance(now: number, micros: number): void {
    this.#now = now;
    this.#seating.advance(now, micros);
    this.endings.forget(now);
    const ended: Entry[] = [];
    for (let entry = this.#leases.takeExpired(now); entry !== null; entry = this.#leases.takeExpired(now)) {
      this.endings.note(entry.claim.id, entry.revoked ?? "expired", now + this.#ttl(entry.claim.ttlMs));
      this.#observer.happened("expired", entry, now);
      this.#unseat(entry);
      ended.push(entry);
    }
    for (const entry of ended) this.#seating.admitBehind(entry);
  }

  /** When advance() has work to do, or null. May be early: extending a lease does not move it. */
  nextDue(): number | null {
    return this.#leases.next();
  }

  /** Takes what became of claims without their asking since the last call: grants, and what was revoked. */
  takeGrants(): readonly Grant[] {
    if (this.#grants.length === 0) return this.#grants;
    const grants = this.#grants;
    this.#grants = [];
    return grants;
  }

  /** Its owner cannot be reached: its waiting place leaves the line until unpark(), so that grants pass over it. */
  park(id: ClaimId): void {
    const entry = this.entries.get(id);
    if (entry !== undefined) this.#seating.park(entry);
  }

  /** Its owner is back: its place stands where its arrival says, behind whoever was granted meanwhile. */
  unpark(id: ClaimId): void {
    const entry = this.entries.get(id);
    if (entry !== undefined) this.#seating.unpark(entry);
  }

  /** Tokens up to (not including) this may be granted from now on. */
  raise(ceiling: number): void {
    this.#seating.raise(ceiling);
  }

  /** The ceiling that those need who are admitted everywhere but have no tokens yet; 0: there are none. */
  get wanting(): number {
    return this.#seating.wanting;
  }

  /** Nobody is admitted until resume(). */
  pause(): void {
    this.#seating.pause();
  }

  resume(): void {
    this.#seating.resume();
  }

  /**
   * A hold that its client asserts after a restart, while the table is paused. It is held as asserted; where holds
   * cannot stand together, the lower tokens go. False if it went itself.
   */
  assertHeld(claim: Claim, owner: unknown, token: number, tokens: number, leftMs: number, by = ""): boolean {
    if (this.entries.has(claim.id)) return true;
    const entry = this.#enroll(claim, owner, 0, by, claim.ttlMs === "session" ? "session" : leftMs);
    this.#seating.enterHeld(entry, token, tokens);
    for (const { line } of entry.seats) {
      for (let loser = line.overfull(); loser !== null; loser = line.overfull()) this.#lose(loser.entry);
    }
    return this.entries.has(claim.id);
  }

  #enroll(claim: Claim, owner: unknown, arrival: number, by: string, leftMs = claim.ttlMs): Entry {
    const expiresAt = leftMs === "session" ? Number.POSITIVE_INFINITY : this.#now + leftMs;
    const entry = new Entry(claim, owner, this.#now, expiresAt, this.#seating.arrive(arrival));
    entry.by = by;
    this.entries.add(claim.id, entry);
    this.#leases.add(entry);
    return entry;
  }

  /** It cannot be held beside a higher token: its client is told at once, and at its next renewal if it is not reached. */
  #lose(entry: Entry): void {
    this.#grants.push({ id: entry.claim.id, owner: entry.owner, answer: { state: "none", reason: "expired" } });
    this.endings.bury(entry.claim.id, "expired", this.#now + this.#ttl(entry.claim.ttlMs));
    this.#observer.happened("expired", entry, this.#now);
    this.#remove(entry);
  }

  #announce(entry: Entry): void {
    this.#grants.push({ id: entry.claim.id, owner: entry.owner, answer: standingOf(entry, this.#now, this.sessionMs) });
  }

  #remove(entry: Entry): void {
    this.#unseat(entry);
    this.#seating.admitBehind(entry);
  }

  #unseat(entry: Entry): void {
    this.entries.delete(entry.claim.id);
    this.#leases.remove(entry);
    this.#seating.leave(entry);
    if (entry.kept) this.#forgotten(entry);
  }

  #extend(entry: Entry, owner: unknown): void {
    if (entry.revoked !== null) return;
    if (!entry.detached) entry.owner = owner;
    this.#leases.extend(entry, this.#now);
  }

  #ttl(ttlMs: number | "session"): number {
    return ttlMs === "session" ? this.sessionMs : ttlMs;
  }
}
