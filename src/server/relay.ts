/**
 * Any driver behind a server: calls go through, grants come back by claim id. What survives a restart is the store's
 * affair; the relay only tells a store that a client has gone where the store cannot see it.
 */

import type { Clock } from "../clock.ts";
import { isFatal } from "../errors.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { Answer, Claim, ClaimId, Driver, Traits } from "../spi/driver.ts";
import type { Backend, Leave, Page, Renewal, Revocation, Which } from "./backend.ts";
import { cutPage, Refusal } from "./backend.ts";
import type { Log } from "./hub.ts";
import type { ProcessProbe, Session } from "./session.ts";
import { Sessions } from "./session.ts";

export interface RelayOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly sessionMs: number;
  readonly probe: ProcessProbe;
  readonly log: Log;
}

/** A claim that has come through. */
interface Known {
  /** The same object for the claim's whole life, as the contract wants it. */
  readonly claim: Claim;
  /** Who is told of a grant; null: detached. */
  session: Session | null;
  held: boolean;
  /** When the store has forgotten it. */
  until: number;
}

/** Opens the driver and gives what a server needs of it. */
export async function openRelay(options: RelayOptions): Promise<{
  readonly backend: Backend;
  readonly sessions: Sessions;
  claims(): number;
  close(): Promise<void>;
}> {
  const { driver, clock, sessionMs, probe } = options;
  const relay = new Relay(options);
  await relay.open();
  const sessions = new Sessions(relay, clock, probe, sessionMs);
  return { backend: relay, sessions, claims: () => relay.size, close: () => driver.close() };
}

class Relay implements Backend {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #sessionMs: number;
  readonly #log: Log;
  readonly #known = new Map<ClaimId, Known>();
  readonly #ids = new Map<Session, Set<ClaimId>>();
  #sweepAt = 1_000;
  #changed: () => void = () => undefined;

  constructor({ driver, clock, sessionMs, log }: RelayOptions) {
    this.#driver = driver;
    this.#clock = clock;
    this.#sessionMs = sessionMs;
    this.#log = log;
  }

  get size(): number {
    return this.#known.size;
  }

  open(): Promise<void> {
    return this.#driver.open((id, answer) => {
      if (id === null) {
        for (const [known, { session }] of this.#known) session?.link?.nudge(known);
        return;
      }
      const known = this.#known.get(id);
      if (known === undefined) return;
      if (answer === undefined) known.session?.link?.nudge(id);
      else {
        this.#note(known, answer);
        known.session?.link?.push(id, answer);
      }
      this.#changed();
    });
  }

  attend(changed: () => void): void {
    this.#changed = changed;
  }

  traits(local: boolean): Traits {
    const { lease, ...traits } = this.#driver.traits;
    // a session of the store's belongs to this process; that of our client is ours to end
    const ours =
      lease.sessionMs === undefined ? {} : { sessionMs: this.#sessionMs, ...(local && { silenceKeeps: true }) };
    return { ...traits, lease: { claim: lease.claim, ...ours } };
  }

  reclaimMs(): number {
    return 0;
  }

  arrivalOf(): number {
    return 0;
  }

  async claim(session: Session, claim: Claim): Promise<Answer> {
    const known = this.#familiar(session, claim);
    const answer = await this.#asked(this.#driver.claim(known.claim));
    this.#note(known, answer);
    return answer;
  }

  async renew(session: Session, items: readonly Renewal[]): Promise<readonly Answer[]> {
    const asked: Known[] = [];
    const found = items.map(({ id, claim }) => {
      const known = this.#known.get(id) ?? (claim === null ? undefined : this.#familiar(session, claim));
      if (known === undefined) return undefined;
      this.#own(session, known);
      asked.push(known);
      return known;
    });
    const answers = asked.length === 0 ? [] : await this.#asked(this.#driver.renew(asked.map(({ claim }) => claim)));
    for (const [at, known] of asked.entries()) this.#note(known, answers[at] as Answer);
    let next = 0;
    return found.map((known) => (known === undefined ? { state: "none" } : (answers[next++] as Answer)));
  }

  async release(_session: Session, items: readonly Leave[]): Promise<readonly boolean[]> {
    const unanswered = new Set<ClaimId>();
    const left: Known[] = [];
    const found = items.map((item) => {
      const known = this.#known.get(item.id);
      if (known === undefined) return false;
      if (item.unanswered !== undefined) unanswered.add(item.id);
      left.push(known);
      return true;
    });
    if (left.length === 0) return found;
    const there = await this.#asked(
      this.#driver.release(
        left.map(({ claim }) => claim),
        unanswered,
      ),
    );
    for (const known of left) this.#forget(known);
    let next = 0;
    return found.map((isKnown) => isKnown && (there[next++] as boolean));
  }

  async detach(_session: Session, ids: readonly ClaimId[]): Promise<readonly boolean[]> {
    const known = ids.map((id) => this.#known.get(id));
    const there = known.filter((it) => it !== undefined);
    // where claims are no session's of the store, only our own session must let go
    const done =
      this.#driver.detach === undefined
        ? there.map(({ held }) => held)
        : await this.#asked(this.#driver.detach(there.map(({ claim }) => claim)));
    let next = 0;
    return known.map((it) => {
      if (it === undefined || !done[next++]) return false;
      this.#disown(it);
      return true;
    });
  }

  async revoke(_session: Session, targets: readonly Revocation[]): Promise<readonly boolean[]> {
    if (this.#driver.revoke === undefined) throw new Refusal("UNSUPPORTED", "this store cannot revoke");
    return this.#asked(this.#driver.revoke(targets));
  }

  async list(prefix: string, max: number, after: string | undefined): Promise<Page> {
    return cutPage(await this.#asked(this.#driver.list(prefix, max + 1, after)), max);
  }

  /** After a restart of the relay: the store knows the claims, the relay learns them again. */
  reclaim(session: Session, items: readonly Reclaimed[]): Promise<readonly Answer[]> {
    return this.renew(
      session,
      items.map(({ claim }) => ({ id: claim.id, claim })),
    );
  }

  end(session: Session, which: Which): void {
    const ending = this.#claimsOf(session).filter(({ claim, held }) => {
      return which === "all" || (which === "waiting" ? !held : claim.ttlMs === "session");
    });
    if (ending.length === 0) return;
    for (const known of ending) this.#forget(known);
    // if this fails their leases end them
    this.#driver.release(ending.map(({ claim }) => claim)).catch((error: unknown) => {
      this.#log("the claims of a client that has gone could not be released; their leases will end them", error);
    });
  }

  park(): void {
    // the store's line is the store's; after the grace the place is given back
  }

  unpark(): void {
    // as park()
  }

  owns(session: Session): boolean {
    return this.#claimsOf(session).length > 0;
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

  /** @throws Refusal if another client uses that id */
  #familiar(session: Session, claim: Claim): Known {
    let known = this.#known.get(claim.id);
    if (known !== undefined && known.session !== null && known.session !== session) {
      throw new Refusal("LIMIT", "this id is another client's");
    }
    if (known === undefined) {
      known = { claim, session, held: false, until: 0 };
      this.#known.set(claim.id, known);
      this.#sweep();
    }
    this.#own(session, known);
    return known;
  }

  #own(session: Session, known: Known): void {
    if (known.session === null && known.held) return;
    if (known.session !== session) this.#disown(known);
    known.session = session;
    const ids = this.#ids.get(session) ?? new Set();
    ids.add(known.claim.id);
    this.#ids.set(session, ids);
    known.until = Math.max(known.until, this.#clock.now() + this.#ttl(known.claim));
  }

  #note(known: Known, answer: Answer): void {
    if (answer.state === "none") {
      this.#forget(known);
      return;
    }
    known.held = answer.state === "held";
    known.until = Math.max(known.until, this.#clock.now() + answer.ttlMs);
  }

  /** Forgets what the store must have forgotten, now and then. */
  #sweep(): void {
    if (this.#known.size < this.#sweepAt) return;
    const now = this.#clock.now();
    for (const known of this.#known.values()) {
      if (known.claim.ttlMs !== "session" && now > known.until + this.#ttl(known.claim)) this.#forget(known);
    }
    this.#sweepAt = Math.max(1_000, this.#known.size * 2);
  }

  #claimsOf(session: Session): Known[] {
    return [...(this.#ids.get(session) ?? [])].map((id) => this.#known.get(id) as Known);
  }

  #forget(known: Known): void {
    this.#known.delete(known.claim.id);
    this.#disown(known);
  }

  #disown(known: Known): void {
    const ids = known.session === null ? undefined : this.#ids.get(known.session);
    ids?.delete(known.claim.id);
    if (ids?.size === 0) this.#ids.delete(known.session as Session);
    known.session = null;
  }

  #ttl({ ttlMs }: Claim): number {
    return ttlMs === "session" ? this.#sessionMs : ttlMs;
  }

  /** What the store throws is the store's: its client is told that the call failed, not what the store said. */
  async #asked<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (isFatal(error)) throw new Refusal("FATAL", (error as Error).message, error);
      this.#log(`${this.#driver.name} failed`, error);
      throw new Refusal("STORE", `the server could not ask its store (${this.#driver.name})`, error);
    }
  }
}
