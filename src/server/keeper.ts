/**
 * The default store of a server: the lock table, and what of it outlives a restart (design A.5).
 *
 *   reclaiming   after an unclean start: nothing new is granted. Clients come back and tell what they had. It ends when
 *                the longest short lease has passed, or when every client that may hold has come back or is gone.
 *   open
 *   draining     nothing is granted any more; the table is about to be saved
 *
 * Invariants
 * - Before an answer says "held": its tokens lie below the bound on disk, its ttl is within the longest short lease on
 *   disk, or, if it is long or detached, it stands in the journal.
 * - A token at or above the bound read at the start was granted by a server that the state knows nothing of (an older
 *   copy was put back, or the folder emptied): the rest of the time that leases from before can last is a recovery.
 */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import { Table } from "../core/table.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { StateName } from "../protocol/hello.ts";
import type { Answer, Claim, ClaimId, ListFilter, Pause, Traits } from "../spi/driver.ts";
import type { Backend, Leave, Owned, Page, Renewal, Revocation, Soon, Which } from "./backend.ts";
import { goingAway } from "./backend.ts";
import type { SavedClaim } from "./disk.ts";
import type { Behind } from "./durability.ts";
import { Durability, SHORT_MS } from "./durability.ts";
import type { KeeperOptions } from "./keeper-options.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import { Lister } from "./lister.ts";
import type { Log } from "./logging.ts";
import { Placing } from "./placing.ts";
import type { RecoveryPlan } from "./reclaiming.ts";
import { Reclaiming, recoveryText } from "./reclaiming.ts";
import type { Record } from "./record.ts";
import { tellRevoked } from "./revoking.ts";
import { putBack } from "./saved.ts";
import type { Session } from "./session.ts";
import { disown } from "./session.ts";
import { Tenants } from "./tenants.ts";
import { checkTerms, traitsOf } from "./terms.ts";
import { Times } from "./times.ts";

const ignore = (): void => undefined;

export class Keeper implements Backend {
  readonly isOurs = true;
  readonly table: Table;
  readonly recovery: Reclaiming;
  readonly identity: StateName | null;
  readonly #clock: Clock;
  readonly #times: Times;
  readonly #durability: Durability | null;
  readonly #log: Log;
  readonly #record: Record | null;
  readonly #tenants: Tenants;
  readonly #placing: Placing;
  readonly #lister: Lister;
  readonly #note: (session: Session) => void;
  #draining = false;
  /** The log has that nothing new is granted; it is to have the end of it, too. */
  #pauseLogged = false;

  constructor(options: KeeperOptions) {
    const { clock, sessionMs, ledger, recovery: plan, identity, log, note, limits = DEFAULT_LIMITS } = options;
    this.#clock = clock;
    this.#times = new Times(clock);
    this.#log = log;
    this.#note = note;
    this.identity = identity;
    this.#record = options.record ?? null;
    this.#tenants = new Tenants(limits, this.#record, options.formerRoom);
    this.#placing = new Placing(limits.claims);
    const ceiling = ledger?.bound ?? Number.POSITIVE_INFINITY;
    const forgotten = (entry: Entry): void => {
      this.#tenants.forgotten(entry);
      if (entry.journaled) this.#durability?.forget(entry);
    };
    const { observer } = this.#tenants;
    const { now, micros } = this.#times.get();
    this.table = new Table({ sessionMs, ceiling, forgotten, observer, mostEndings: limits.claims });
    this.table.advance(now, Math.max(tokensBelow(plan), micros));
    this.#durability = ledger === null ? null : new Durability(ledger, this.table, clock);
    this.#lister = new Lister(this.table, clock, limits.listMs);
    const opened = (): void => {
      this.#durability?.ledger.reclaimed();
      if (this.#draining) return;
      this.table.resume();
      if (this.#pauseLogged) this.#log("recovery is over: new locks are granted");
      this.#pauseLogged = false;
    };
    const outdated = (): void => this.#outdated();
    this.recovery = new Reclaiming({ table: this.table, clock, plan, opened, outdated });
    // until start(): what comes back from disk is not to be admitted again
    this.table.pause();
  }

  /** Puts a claim back that comes from disk. `owner`: null if it belongs to no session. */
  restore(saved: SavedClaim, owner: Session | null): void {
    const { now, micros } = this.#times.get();
    const entry = putBack(this.table, saved, owner, now, micros);
    if (entry === null) return;
    this.#durability?.asked(saved.claim);
    this.#tenants.restored(entry, owner, saved.holdLeftMs, now);
    entry.journaled = this.#durability?.ledger.has(saved.claim.id) ?? false;
  }

  /** What comes back from disk stands: grants are made again, or reclaiming begins. */
  start(): void {
    if (!this.recovery.isOn) this.table.resume();
    else this.recovery.endIfOver();
    this.#logPause();
  }

  attend(changed: () => void): void {
    if (this.#durability !== null) this.#durability.changed = changed;
  }

  outdated(): void {
    this.recovery.begin();
  }

  get reclaiming(): boolean {
    return this.recovery.isOn;
  }

  traits(local: boolean): Traits {
    return traitsOf(this.table.sessionMs, local);
  }

  reclaimMs(): number {
    return this.recovery.leftMs();
  }

  owns(session: Session): boolean {
    return session.entries.size > 0;
  }

  owned(id: ClaimId): Owned | undefined {
    return this.table.entries.get(id);
  }

  arrivalOf(id: ClaimId): number {
    return this.table.entries.get(id)?.arrival ?? 0;
  }

  begin(): void {
    this.#times.begin();
  }

  claim(session: Session, claim: Claim): Soon<Answer> {
    const { micros } = this.#times.get();
    if (this.#draining) throw goingAway();
    checkTerms(claim, this.table, micros, this.#durability !== null);
    this.#tenants.check(this.table, session, claim);
    if (!session.noted) this.#note(session);
    const write = this.#durability?.before(claim, micros) ?? null;
    if (write === null) return this.#place(session, claim);
    return this.#placing.after(claim.id, write).then((isWanted) => {
      // whoever has been cut off asks again when it is back: nothing is to stand in the way of others until then
      if (!isWanted || session.ended || session.link === null) return this.table.endings.none(claim.id);
      if (this.#draining) throw goingAway();
      this.#tenants.check(this.table, session, claim);
      return this.#place(session, claim);
    });
  }

  renew(session: Session, items: readonly Renewal[]): Soon<readonly (Answer | undefined)[]> {
    const { now, micros } = this.#times.get();
    if (!session.noted) this.#note(session);
    const { entries } = this.table;
    const behind: Behind[] = [];
    const answers = items.map(({ id }, at) => {
      if (this.recovery.mayHaveBeen(id)) return undefined;
      const entry = entries.get(id);
      if (entry !== undefined) this.#tenants.own(entry, session);
      else if (this.#placing.has(id)) return undefined;
      const answer = this.#told(this.table.renew(id, session, now, micros));
      if (entry === undefined || answer.state === "none") return answer;
      const write = this.#durability?.behind(entry);
      if (write) behind.push({ at, entry, write });
      return answer;
    });
    return behind.length === 0 ? answers : (this.#durability as Durability).answers(answers, behind);
  }

  release(session: Session, items: readonly Leave[]): Soon<readonly boolean[]> {
    const { now, micros } = this.#times.get();
    let isJournaled = false;
    this.table.advance(now, micros);
    const there = items.map(({ id, unanswered }) => {
      const entry = this.table.entries.get(id);
      this.#placing.leave(id);
      if (entry === undefined) return this.recovery.givenBack(id) || this.table.release(id, now, micros, unanswered);
      if (unanswered !== undefined) this.table.bury(id, unanswered);
      if (entry.journaled) isJournaled = true;
      this.#tenants.leaving(entry, session);
      return this.table.leave(entry);
    });
    // a claim that would come back after a crash has not been released
    return isJournaled && this.#durability !== null ? this.#durability.ledger.settled().then(() => there) : there;
  }

  detach(session: Session, ids: readonly ClaimId[], leftMs?: number): Soon<readonly boolean[]> {
    const { now, micros } = this.#times.get();
    const writes: Promise<void>[] = [];
    const there = ids.map((id) => {
      const entry = this.table.entries.get(id);
      if (entry === undefined) return false;
      disown(entry);
      const keep = (): void => this.#tenants.keep(this.table, entry, session, this.#times.get());
      const done = this.table.detach(id, now, micros, leftMs);
      const write = done ? this.#durability?.writeDetached(entry, keep) : keep();
      if (write !== undefined) writes.push(write);
      return done;
    });
    return writes.length === 0 ? there : Promise.all(writes).then(() => there);
  }

  revoke(session: Session, targets: readonly Revocation[]): Soon<readonly boolean[]> {
    const { now, micros } = this.#times.get();
    const there = targets.map((target) => {
      const done = this.table.revoke(target.key, Number(target.token), target.now, now, micros);
      if (done) tellRevoked(target, session, this.#log, this.#record);
      return done;
    });
    this.settle();
    return this.#durability?.ledger.settled().then(() => there) ?? there;
  }

  list({ principal }: Session, filter: ListFilter, max: number, after: string | undefined): Soon<Page> {
    this.advance(this.#times.get().now);
    return this.#lister.list(principal, filter, max, after);
  }

  reclaim(session: Session, items: readonly Reclaimed[], last: boolean): Soon<readonly Answer[]> {
    if (!session.noted) this.#note(session);
    const own = (entry: Entry): void => {
      const time = this.#times.get();
      this.#tenants.keep(this.table, entry, session, time);
      // how long it was held before nobody knows: it counts anew
      this.#tenants.bound(entry, session, time.now);
    };
    const fits = (claim: Claim, isHeld: boolean): boolean => this.#tenants.fits(this.table, session, claim, isHeld);
    const back = (): Answer[] => this.recovery.takeBack(session, items, last, this.#times.get(), { fits, own });
    return this.#durability?.beforeReclaim(items)?.then(back) ?? back();
  }

  end(session: Session, which: Which): void {
    this.#tenants.end(this.table, session, which, this.#times.get());
    if (which === "all") this.recovery.told(session);
  }

  park(session: Session): void {
    for (const { claim } of session.entries) this.table.park(claim.id);
  }

  unpark(session: Session): void {
    for (const { claim } of session.entries) this.table.unpark(claim.id);
  }

  nextDue(): number {
    return Math.min(
      this.table.nextDue() ?? Number.POSITIVE_INFINITY,
      this.#tenants.nextDue(),
      this.#lister.nextDue(),
      this.recovery.openAt,
      this.#durability?.nextDue() ?? Number.POSITIVE_INFINITY,
    );
  }

  advance(now: number): void {
    const { micros } = this.#times.get();
    this.table.advance(now, micros);
    this.#tenants.advance(this.table, { now, micros });
    this.#lister.advance(now);
    this.recovery.endIfOver();
    this.#durability?.advance(now);
  }

  settle(): void {
    this.#times.end();
    for (const { id, owner, answer } of this.table.takeGrants()) {
      const session = owner as Session | null;
      const entry = this.table.entries.get(id);
      if (entry !== undefined && session !== null) this.#tenants.bound(entry, session, this.#clock.now());
      const write = entry === undefined ? null : (this.#durability?.behind(entry) ?? null);
      const link = session?.link;
      if (write === null || answer.state === "none") link?.push(id, answer);
      // its client asks again, and is answered when the journal says so
      void write?.then(ignore, ignore).then(() => link?.nudge(id));
    }
    this.#durability?.settle();
  }

  /** Nothing is granted any more, and nothing new is taken. */
  drain(): void {
    this.#draining = true;
    this.table.pause();
  }

  #outdated(): void {
    this.#durability?.ledger.outdated(SHORT_MS);
    this.#logPause();
  }

  /** Operators and programs that embed the server hear why nothing new is granted. */
  #logPause(): void {
    const { reason } = this.recovery;
    if (reason === null) return;
    this.#log(recoveryText(reason, this.reclaimMs()), undefined, { level: "warn" });
    this.#pauseLogged = true;
  }

  /** Whoever waits is told while nothing new is granted. */
  #told(answer: Answer): Answer {
    return answer.state === "waiting" && this.reclaiming ? { ...answer, paused: this.#pause } : answer;
  }

  /** A claim that does not wait was not granted. Unknown is not busy: whoever holds its keys may not have told us yet. */
  #refused(claim: Claim): Answer {
    const none = this.table.endings.none(claim.id);
    const isUnknown = this.reclaiming && !claim.wait && this.table.fits(claim);
    return isUnknown ? { state: "none", paused: this.#pause } : none;
  }

  get #pause(): Pause {
    return { reason: "recovery", remainingMs: Math.ceil(this.reclaimMs()) };
  }

  #place(session: Session, claim: Claim): Soon<Answer> {
    const { now, micros } = this.#times.get();
    const entry = this.table.place(claim, session, now, micros, 0, session.principal.name);
    if (entry === null) return this.#refused(claim);
    const answer = this.#told(this.table.standing(entry));
    if (answer.state === "none") return answer;
    this.#tenants.own(entry, session);
    this.#tenants.bound(entry, session, entry.placedAt);
    if (answer.state === "waiting") return answer;
    const write = this.#durability?.behind(entry) ?? null;
    if (write === null) return answer;
    const refuse = (error: unknown): never => {
      const { now, micros } = this.#times.get();
      this.table.release(claim.id, now, micros);
      throw error;
    };
    return write.then(() => (this.#durability as Durability).still(answer, entry), refuse);
  }
}

/** All tokens from before lie below it; 0: that is not known. */
function tokensBelow({ boundAtStart }: RecoveryPlan): number {
  return Number.isFinite(boundAtStart) ? boundAtStart : 0;
}
