/**
 * Locks by a majority of several independent stores (N = 3, 5, ...), each with a driver of its own: a minority of them may
 * be away, slow, or empty. Usable over any drivers whose claims have leases and tokens.
 *
 * A claim has a place in its key's line at every member, under its own id: its votes (ballot.ts).
 *
 *   asking   its places are being made; fewer than a majority of members have answered: unknown, never "busy"
 *   waiting  a majority of members keeps a place; fewer than a majority of its places are votes (granted there)
 *   voted    a majority of its places are votes; its token is being agreed on (tickets.ts)
 *   held     a majority of members has given one token; answered, or pushed, only now
 *   none     a majority of places can stand no more; what is left of them is given back
 *
 * Invariants
 * - Exclusion: held means that a majority of votes stands, each counted by our clock from when its own call was SENT to
 *   that member (so the lease is that of the oldest send among the latest majority), and any two majorities share a
 *   member, which grants no two exclusive claims. Of a semaphore that is not true (2 permits at 3 members admit three
 *   holders by pairs), so permits are "shared" only: readers and writers.
 * - Tokens rise: a token is the grant's when a majority of members has set that very token aside for it, on a ticket claimed
 *   after a majority of votes stood. A later grant gets its ticket after that, at a majority that shares a member with the
 *   former; that member's tokens rise, and the later token is one of its own. This is the write-back of the highest token:
 *   one more trip before a grant is reported.
 * - A claim that has asked for a ticket and then has no majority of votes is over: it could find its old ticket again.
 * - Order is that of arrival while members see claims in one order. Otherwise each may have some votes and none enough (a
 *   tie): after a random time it gives its votes back and lines up again there, until one has a majority. So `fifo` is
 *   false. A claim that does not wait tries three times.
 * - A place that a member has lost (restarted empty) or never had (it was away) is made again by the next renewal, behind
 *   whoever came there first. A grant whose votes fall below a majority is lost, whatever its token.
 * - Leaving is certain: a release is answered when a majority has answered; what the others have not answered is released
 *   as soon as they answer anything (connection.ts), or ends with its lease.
 * - Every call is bounded by an eighth of the lease (and callTimeoutMs), and settles as soon as a majority holds or cannot
 *   hold. There is no timer about claims: the core asks again when it was told to.
 */

import type { Checks } from "../../checks.ts";
import { checkOptions, isClock, isFunction, isObject, milliseconds } from "../../checks.ts";
import type { Clock } from "../../clock.ts";
import { systemClock } from "../../clock.ts";
import { shown } from "../../duration.ts";
import { FatalDriverError, harmless } from "../../errors.ts";
import type { Answer, Claim, ClaimId, ClaimView, Driver, ListFilter, Notify, Traits } from "../../spi/driver.ts";
import type { Ballot } from "./ballot.ts";
import { majorityOf } from "./ballot.ts";
import { Ballots } from "./ballots.ts";
import { awakeTime, gather, Member } from "./connection.ts";
import { detaching } from "./detaching.ts";
import { listed } from "./listing.ts";
import { releasing } from "./releasing.ts";
import { Round } from "./round.ts";
import { isTicketKey } from "./tickets.ts";
import { Voting } from "./voting.ts";

/** What may be said of a majority of stores. */
export interface QuorumOptions {
  /** After how many milliseconds a member's answer is not waited for any more; never more than an eighth of a lease. Default 1 s. */
  readonly callTimeoutMs?: number;
  /** How long a majority may take to be reached for the first time, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** Told when a member (by its index) fails, with the error, and when it answers again, with null. Default: nobody is. */
  readonly onMember?: (member: number, error: unknown) => void;
  /** For tests. Default: the machine's. */
  readonly clock?: Clock;
  /** Numbers from 0 to 1, for the jitter of ties. Default Math.random. */
  readonly random?: () => number;
}

const CHECKS: Checks<QuorumOptions> = {
  callTimeoutMs: milliseconds(),
  connectTimeoutMs: milliseconds(),
  onMember: isFunction,
  clock: isClock,
  random: isFunction,
};

/** A majority is there: how long open() waits for the rest. */
const OTHERS_MS = 200;

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false,
  permits: "shared",
  fencing: true,
  fifo: false,
  survives: "failover",
};

/**
 * A driver that holds what a majority of `drivers` (an odd number, 3 or more) holds. They must be independent stores, and
 * are opened and closed with it. Not for semaphores and not for claims of several keys at once (the core takes those one
 * by one).
 * @throws TypeError naming the argument if drivers or an option is wrong
 */
export function quorum(drivers: readonly Driver[], options: QuorumOptions = {}): Driver {
  if (!Array.isArray(drivers) || drivers.length < 3 || drivers.length % 2 === 0) {
    throw new TypeError("drivers must be an odd number of drivers, 3 or more");
  }
  if (new Set(drivers).size !== drivers.length) throw new TypeError("drivers must differ: each is a store of its own");
  for (const [at, driver] of drivers.entries()) {
    if (!isObject(driver) || typeof driver.claim !== "function")
      throw new TypeError(`drivers[${at}] must be a driver, not ${shown(driver)}`);
  }
  checkOptions("quorum", options, CHECKS);
  return new Quorum(drivers, options);
}

class Quorum implements Driver {
  readonly name = "quorum";
  readonly traits: Traits = TRAITS;
  readonly #members: readonly Member[];
  readonly #majority: number;
  readonly #options: QuorumOptions;
  readonly #time: () => number;
  readonly #ballots: Ballots;
  readonly #voting: Voting;
  #notify: Notify = () => undefined;

  constructor(drivers: readonly Driver[], options: QuorumOptions) {
    this.#options = options;
    const clock = options.clock ?? systemClock;
    this.#time = awakeTime(clock);
    this.#majority = majorityOf(drivers.length);
    this.#ballots = new Ballots(drivers.length);
    const heard = (index: number, id: ClaimId | null, answer?: Answer): void => this.#heard(index, id, answer);
    const told = harmless(options.onMember ?? (() => undefined));
    this.#members = drivers.map((driver, index) => new Member({ index, driver, clock, time: this.#time, heard, told }));
    this.#voting = new Voting({
      members: this.#members,
      ballots: this.#ballots,
      clock,
      time: this.#time,
      random: options.random ?? Math.random,
      patience: ({ claim }) => this.#patience([claim]),
      notify: (id, answer) => this.#notify(id, answer),
    });
  }

  async open(notify: Notify): Promise<void> {
    const errors: unknown[] = [];
    const asked = this.#members.map((member) => ({
      member,
      settled: member.open().catch((error: unknown) => void errors.push(error)),
    }));
    const without = this.#members.length - this.#majority;
    const isDecided = (): boolean => this.#reached >= this.#majority || errors.length > without;
    for (const { member } of asked) member.suspect = false; // nobody is waited for less than the others
    await gather(asked, isDecided, this.#options.connectTimeoutMs ?? 5_000);
    const wrong = errors.find((error) => error instanceof TypeError);
    if (this.#reached >= this.#majority && wrong === undefined) {
      // the others are waited for a little, so that the first claims get their votes too
      await gather(asked, () => this.#reached + errors.length === asked.length, OTHERS_MS);
      this.#notify = notify;
      return;
    }
    await this.close();
    const round = new Round(this.#members.length);
    for (const error of errors) round.failed(error);
    throw wrong ?? round.failure;
  }

  async claim(claim: Claim): Promise<Answer> {
    const [{ key }] = claim.holds;
    if (isTicketKey(key)) throw new FatalDriverError(`quorum: the key ${JSON.stringify(key)} is kept for tokens`);
    const ballot = this.#ballots.of(claim, this.#time());
    ballot.isOurs = true;
    return this.#busy([ballot], () => this.#voting.placed(ballot, this.#time() + this.#patience([claim]), 1));
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const startedAt = this.#time();
    const until = startedAt + this.#patience(claims);
    const ballots = claims.map((claim) => this.#ballots.of(claim, startedAt));
    return this.#busy(ballots, async () => {
      const rounds = ballots.map(() => new Round(this.#members.length));
      const asked = this.#members.flatMap((member) => this.#voting.renewed(member, ballots, rounds));
      await gather(asked, () => rounds.every(({ isDecided }) => isDecided), until - this.#time());
      // fewer than a majority: unknown of all, though votes may stand by what was said before
      const isUnknown = asked.length > 0 && rounds.every(({ isHeard }) => !isHeard);
      const looks = isUnknown ? [] : ballots;
      const answers = await Promise.allSettled(
        looks.map((ballot, index) => this.#voting.standing(ballot, rounds[index] as Round, startedAt, until)),
      );
      for (const ballot of ballots) this.#voting.repair(ballot);
      if (isUnknown) throw (rounds[0] as Round).failure;
      const failed = answers[0];
      if (failed?.status === "rejected" && answers.every(({ status }) => status === "rejected")) throw failed.reason;
      // what is not known of one claim costs the others nothing
      return answers.map((answer) => (answer.status === "rejected" ? undefined : answer.value));
    });
  }

  async release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]> {
    const ballots = claims.map((claim) => this.#ballots.take(claim));
    return releasing(this.#members, ballots, unanswered, this.#patience(claims));
  }

  async detach(claims: readonly Claim[], leftMs?: number): Promise<readonly boolean[]> {
    const answers = await this.renew(claims);
    if (answers.includes(undefined)) throw new Error("quorum: where a claim stands is not known, so it stays ours");
    const held = claims.filter((_, index) => answers[index]?.state === "held");
    const ballots = held.map((claim) => this.#ballots.of(claim, this.#time()));
    const kept = await detaching(this.#members, ballots, this.#patience(claims), leftMs);
    return claims.map((claim) => {
      const isKept = kept[held.indexOf(claim)] === true;
      // what becomes of it is no business of ours any more, not even if it comes back to us
      if (isKept) this.#ballots.take(claim);
      return isKept;
    });
  }

  list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]> {
    return listed(this.#members, { filter, max, after, signal }, this.#patience([]));
  }

  async close(): Promise<void> {
    this.#notify = () => undefined;
    await Promise.all(this.#members.map((member) => member.close()));
  }

  get #reached(): number {
    return this.#members.filter(({ isOpen }) => isOpen).length;
  }

  /** The core gives up on a call after a sixth of the lease. */
  #patience(claims: readonly Claim[]): number {
    let ms = this.#options.callTimeoutMs ?? 1_000;
    for (const { ttlMs } of claims) if (ttlMs !== "session") ms = Math.min(ms, ttlMs / 8);
    return ms;
  }

  /** While a verb is at work on them, it sees what changes; afterwards what changes is told. */
  async #busy<T>(ballots: readonly Ballot[], work: () => Promise<T>): Promise<T> {
    for (const ballot of ballots) ballot.verbs++;
    try {
      return await work();
    } finally {
      for (const ballot of ballots) {
        ballot.verbs--;
        this.#voting.changed(ballot);
      }
    }
  }

  #heard(index: number, id: ClaimId | null, answer: Answer | undefined): void {
    const ballot = id === null ? undefined : this.#ballots.get(id);
    if (id === null) this.#notify(null);
    else if (ballot === undefined) return;
    else if (answer === undefined) this.#notify(id);
    else if (ballot.pushed(index, answer, this.#time())) this.#voting.changed(ballot);
    else this.#notify(id);
  }
}
