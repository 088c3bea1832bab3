/**
 * Any driver behind a server: calls go through, grants come back by claim id. What survives a restart is the store's
 * affair; the relay only tells a store that a client has gone where the store cannot see it.
 *
 * Invariant: a claim that nobody wants any more leaves no place behind, also if its `claim` call is still under way: its
 * release says so to the store, and is repeated when that call has settled, and while the store does not answer it.
 */

import type { Clock } from "../clock.ts";
import { isFatal } from "../errors.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { Answer, Claim, ClaimId, ClaimView, Driver, ListFilter, Traits } from "../spi/driver.ts";
import type { Backend, Leave, Owned, Page, Renewal, Revocation, Which } from "./backend.ts";
import { Refusal } from "./backend.ts";
import type { Log } from "./hub.ts";
import { Leftovers } from "./leftovers.ts";
import type { ServerLimits } from "./limits.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { Record } from "./record.ts";
import type { Relayed } from "./relayed.ts";
import { RelayedClaims } from "./relayed.ts";
import { tellRevoked } from "./revoking.ts";
import type { ProcessProbe, Session } from "./session.ts";
import { Sessions } from "./session.ts";
import { StoreHealth } from "./store-health.ts";
import { visiblePage } from "./store-list.ts";
import { checkStore, checkTraits } from "./terms.ts";

export interface RelayOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly sessionMs: number;
  readonly probe: ProcessProbe;
  readonly log: Log;
  /** Those of claims in all, of a session and of an account; lines are the store's. Default: the usual ones. */
  readonly limits?: ServerLimits;
  /** Told of what passes through. */
  readonly record?: Record;
}

const NONE: Answer = { state: "none" };

/** Opens the driver and gives what a server needs of it. @throws (rejects) Error if it can be no server's store */
export async function openRelay(options: RelayOptions): Promise<{
  readonly backend: Backend;
  readonly sessions: Sessions;
  claims(): number;
  /** Why the store can grant nothing, as far as is known; null: it can. */
  trouble(): string | null;
  lost(): null;
  close(): Promise<void>;
}> {
  const { driver, clock, sessionMs, probe } = options;
  const relay = new Relay(options);
  await relay.open();
  await checkStore(driver);
  const sessions = new Sessions(relay, clock, probe, sessionMs);
  return {
    backend: relay,
    sessions,
    claims: () => relay.size,
    trouble: () => relay.health.trouble(),
    lost: () => null,
    close: () => driver.close(),
  };
}

class Relay implements Backend {
  readonly isOurs = false;
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #sessionMs: number;
  readonly #leftovers: Leftovers;
  readonly #claims: RelayedClaims;
  readonly #record: Record | undefined;
  readonly #log: Log;
  readonly health: StoreHealth;
  #changed: () => void = () => undefined;

  constructor({ driver, clock, sessionMs, log, record, limits = DEFAULT_LIMITS }: RelayOptions) {
    this.#driver = driver;
    this.#clock = clock;
    this.#sessionMs = sessionMs;
    this.#record = record;
    this.#log = log;
    this.health = new StoreHealth(driver, clock, log);
    this.#claims = new RelayedClaims(sessionMs, record, limits);
    this.#leftovers = new Leftovers(driver, clock, log, this.#claims);
  }

  get size(): number {
    return this.#claims.size;
  }

  open(): Promise<void> {
    return this.#driver.open((id, answer) => {
      if (id === null) {
        this.#leftovers.offer();
        for (const { claim, session } of this.#claims.all()) session?.link?.nudge(claim.id);
        return;
      }
      const known = this.#claims.get(id);
      if (known === undefined) return;
      // learning may take it from its session
      const { session } = known;
      if (answer === undefined) session?.link?.nudge(id);
      else {
        this.#claims.learn(known, answer, this.#clock.now());
        session?.link?.push(id, answer);
      }
      this.#changed();
    });
  }

  attend(changed: () => void): void {
    this.#changed = changed;
  }

  traits(local: boolean): Traits {
    const { lease, ...traits } = this.#driver.traits;
    // a session of the store's belongs to this process; that of our client is ours to end, and may not outlive it
    const sessionMs = Math.min(this.#sessionMs, lease.sessionMs ?? 0);
    const ours = lease.sessionMs === undefined ? {} : { sessionMs, ...(local && { silenceKeeps: true }) };
    return { ...traits, lease: { claim: lease.claim, ...ours } };
  }

  reclaimMs(): number {
    return 0;
  }

  owned(id: ClaimId): Owned | undefined {
    return this.#claims.get(id);
  }

  arrivalOf(): number {
    return 0;
  }

  async claim(session: Session, claim: Claim): Promise<Answer> {
    this.#claims.check(claim, session, this.#clock.now());
    const known = this.#familiar(session, claim, true);
    known.unanswered++;
    const answer = await this.#asked(this.#driver.claim(known.claim));
    known.unanswered--;
    if (known.gone) {
      // its client has left or released it meanwhile, and has not come back for it
      if (answer.state !== "none" && !this.#claims.get(claim.id)) this.#leftovers.giveBack([known]);
      return NONE;
    }
    this.#claims.learn(known, answer, this.#clock.now());
    return answer;
  }

  /** isMaker: the session tells of what it placed before a restart of ours. */
  async renew(session: Session, items: readonly Renewal[], isMaker = false): Promise<readonly (Answer | undefined)[]> {
    const asked: Relayed[] = [];
    const found = items.map(({ id, claim }) => {
      const known = this.#claims.get(id) ?? (claim === null ? undefined : this.#familiar(session, claim, isMaker));
      if (known === undefined) return undefined;
      this.#claims.own(session, known, this.#clock.now());
      asked.push(known);
      return known;
    });
    if (asked.length === 0) return found.map(() => NONE);
    const answers = await this.#asked(this.#driver.renew(asked.map(({ claim }) => claim))).catch((error: unknown) => {
      this.#claims.unheard(asked, this.#clock.now());
      throw error;
    });
    const now = this.#clock.now();
    for (const [at, known] of asked.entries()) {
      const answer = answers[at];
      if (answer !== undefined) this.#claims.learn(known, answer, now);
    }
    let next = 0;
    return found.map((known) => (known === undefined ? NONE : answers[next++]));
  }

  async release(session: Session, items: readonly Leave[]): Promise<readonly boolean[]> {
    const unanswered = new Set<ClaimId>();
    const left: Relayed[] = [];
    const found = items.map((item) => {
      const known = this.#claims.get(item.id);
      if (known === undefined) return false;
      if (item.unanswered !== undefined || known.unanswered > 0) unanswered.add(item.id);
      left.push(known);
      return true;
    });
    if (left.length === 0) return found;
    const now = this.#clock.now();
    for (const known of left) this.#claims.leaving(known, session, now);
    const claims = left.map(({ claim }) => claim);
    const there = await this.#asked(this.#driver.release(claims, unanswered));
    for (const known of left) this.#claims.forget(known, "released", now);
    let next = 0;
    return found.map((isKnown) => isKnown && (there[next++] as boolean));
  }

  async detach(_session: Session, ids: readonly ClaimId[], leftMs?: number): Promise<readonly boolean[]> {
    const known = ids.map((id) => this.#claims.get(id));
    const there = known.filter((it) => it !== undefined);
    // where claims are no session's of the store, only our own session must let go
    const done =
      this.#driver.detach === undefined
        ? there.map(({ state, revoked }) => state === "held" && !revoked)
        : await this.#asked(
            this.#driver.detach(
              there.map(({ claim }) => claim),
              leftMs,
            ),
          );
    let next = 0;
    return known.map((it) => {
      if (it === undefined || !done[next++] || it.gone) return false;
      this.#claims.disown(it);
      return true;
    });
  }

  async revoke(session: Session, targets: readonly Revocation[]): Promise<readonly boolean[]> {
    if (this.#driver.revoke === undefined) throw new Refusal("UNSUPPORTED", "this store cannot revoke");
    const done = await this.#asked(this.#driver.revoke(targets));
    const now = this.#clock.now();
    const gone = targets.filter((_, at) => done[at] === true);
    const known = this.#claims.revokedBy(gone, now);
    // of what came by another way the record knows nothing
    for (const target of gone)
      tellRevoked(target, session, this.#log, known.has(target) ? (this.#record ?? null) : null);
    return done;
  }

  async list(session: Session, filter: ListFilter, max: number, after: string | undefined): Promise<Page> {
    const ask = (count: number, cursor?: string): Promise<readonly ClaimView[]> =>
      this.#asked(this.#driver.list(filter, count, cursor));
    return visiblePage(ask, session.principal, max, after);
  }

  /** After a restart of the relay: the store knows the claims, the relay learns them again. */
  reclaim(session: Session, items: readonly Reclaimed[]): Promise<readonly (Answer | undefined)[]> {
    const all = items.map(({ claim }) => ({ id: claim.id, claim }));
    return this.renew(session, all, true);
  }

  end(session: Session, which: Which): void {
    const ending = this.#claims.endingWith(session, which, this.#clock.now());
    if (ending.length === 0) return;
    for (const known of ending) this.#claims.forget(known, "gone", this.#clock.now());
    this.#leftovers.giveBack(ending);
  }

  park(): void {
    // the store's line is the store's; after the grace the place is given back
  }

  unpark(): void {
    // as park()
  }

  owns(session: Session): boolean {
    return this.#claims.of(session).length > 0;
  }

  nextDue(): number {
    return Number.POSITIVE_INFINITY;
  }

  advance(): void {
    // the store's time is the store's
  }

  settle(): void {
    // notify() comes by itself
  }

  /** @throws Refusal if another client uses that id, or the store cannot do what it wants */
  #familiar(session: Session, claim: Claim, isMaker: boolean): Relayed {
    const found = this.#claims.get(claim.id);
    if (found !== undefined && found.session !== null && found.session !== session) {
      throw new Refusal("LIMIT", "this id is another client's");
    }
    if (found === undefined) checkTraits(claim, this.#driver.traits);
    const now = this.#clock.now();
    const known = found ?? this.#claims.add(claim, session.principal.name, now);
    if (isMaker) known.maker ??= session;
    this.#claims.own(session, known, now);
    return known;
  }

  /** What the store throws is the store's: its client is told that the call failed, not what the store said. */
  async #asked<T>(call: Promise<T>): Promise<T> {
    try {
      const answer = await call;
      this.health.answered();
      this.#leftovers.offer();
      return answer;
    } catch (error) {
      // the call's own fault
      if (isFatal(error)) {
        this.health.doubt();
        throw new Refusal("FATAL", (error as Error).message, error);
      }
      this.health.failed(error);
      throw new Refusal("STORE", `the server could not ask its store (${this.#driver.name})`, error);
    }
  }
}
