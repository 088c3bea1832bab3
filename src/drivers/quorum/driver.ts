/**
 * Locks by a majority of several independent stores (N = 3, 5, ...), each with a driver of its own: a minority of them may
 * be away, slow, or empty. Usable over any drivers whose claims have leases and tokens.
 *
 * A claim has a place in its key's line at every member, under its own id: its votes (quorum-claim.ts).
 *
 *   asking   its places are being made; fewer than a majority of members have answered: unknown, never "busy"
 *   waiting  a majority of members keeps a place; fewer than a majority of its places are votes (granted there)
 *   voted    a majority of its places are votes; its token is being agreed on (token-claims.ts)
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
 *   as soon as they answer anything (member.ts), or ends with its lease.
 * - Every call is bounded by an eighth of the lease (and callTimeoutMs), and settles as soon as a majority holds or cannot
 *   hold. There is no timer about claims: the core asks again when it was told to.
 */

import { FatalDriverError, safeListener } from "../../errors.ts";
import type { Answer, Claim, ClaimId, ClaimView, Driver, ListFilter, Notify, Traits } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import { describeValue } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import { clockRule, functionRule, isObject, millisecondsRule, validateOptions } from "../../util/validate.ts";
import { ClaimCoordinator } from "./claims.ts";
import { detachClaims } from "./detach.ts";
import { listClaims } from "./list.ts";
import { createSuspendAwareTime, Member, waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { toMajority } from "./quorum-claim.ts";
import { QuorumClaims } from "./quorum-claims.ts";
import { releaseClaims } from "./release.ts";
import { Tally } from "./tally.ts";
import { isTokenKey } from "./token-claims.ts";

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

const OPTION_RULES: OptionRules<QuorumOptions> = {
  callTimeoutMs: millisecondsRule(),
  connectTimeoutMs: millisecondsRule(),
  onMember: functionRule,
  clock: clockRule,
  random: functionRule,
};

/** A majority is there: how long open() waits for the rest. */
const REMAINING_MEMBERS_MS = 200;

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
  for (const [index, driver] of drivers.entries()) {
    if (!isObject(driver) || typeof driver.claim !== "function")
      throw new TypeError(`drivers[${index}] must be a driver, not ${describeValue(driver)}`);
  }
  validateOptions("quorum", options, OPTION_RULES);
  return new QuorumDriver(drivers, options);
}

class QuorumDriver implements Driver {
  readonly name = "quorum";
  readonly traits: Traits = TRAITS;
  readonly #members: readonly Member[];
  readonly #majority: number;
  readonly #options: QuorumOptions;
  readonly #time: () => number;
  readonly #claims: QuorumClaims;
  readonly #coordinator: ClaimCoordinator;
  #notify: Notify = () => undefined;

  constructor(drivers: readonly Driver[], options: QuorumOptions) {
    this.#options = options;
    const clock = options.clock ?? systemClock;
    this.#time = createSuspendAwareTime(clock);
    this.#majority = toMajority(drivers.length);
    this.#claims = new QuorumClaims(drivers.length);
    const onPush = (index: number, id: ClaimId | null, answer?: Answer): void => this.#onPush(index, id, answer);
    const onHealthChange = safeListener(options.onMember ?? (() => undefined));
    this.#members = drivers.map(
      (driver, index) => new Member({ index, driver, clock, time: this.#time, onPush, onHealthChange }),
    );
    this.#coordinator = new ClaimCoordinator({
      members: this.#members,
      claims: this.#claims,
      clock,
      time: this.#time,
      random: options.random ?? Math.random,
      getTimeoutMs: ({ claim }) => this.#getTimeoutMs([claim]),
      notify: (id, answer) => this.#notify(id, answer),
    });
  }

  async open(notify: Notify): Promise<void> {
    const errors: unknown[] = [];
    const calls = this.#members.map((member) => ({
      member,
      settled: member.open().catch((error: unknown) => void errors.push(error)),
    }));
    const minority = this.#members.length - this.#majority;
    const isDecided = (): boolean => this.#openCount >= this.#majority || errors.length > minority;
    for (const { member } of calls) member.isSuspect = false; // nobody is waited for less than the others
    await waitForMembers(calls, isDecided, this.#options.connectTimeoutMs ?? 5_000);
    const invalidMember = errors.find((error) => error instanceof TypeError);
    if (this.#openCount >= this.#majority && invalidMember === undefined) {
      // the others are waited for a little, so that the first claims get their votes too
      await waitForMembers(calls, () => this.#openCount + errors.length === calls.length, REMAINING_MEMBERS_MS);
      this.#notify = notify;
      return;
    }
    await this.close();
    const tally = new Tally(this.#members.length);
    for (const error of errors) tally.addError(error);
    throw invalidMember ?? tally.failure;
  }

  async claim(claim: Claim): Promise<Answer> {
    const [{ key }] = claim.holds;
    if (isTokenKey(key)) throw new FatalDriverError(`quorum: the key ${JSON.stringify(key)} is kept for tokens`);
    const quorumClaim = this.#claims.getOrCreate(claim, this.#time());
    quorumClaim.isOurs = true;
    return this.#whileActive([quorumClaim], () =>
      this.#coordinator.claim(quorumClaim, this.#time() + this.#getTimeoutMs([claim]), 1),
    );
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const startedAt = this.#time();
    const deadline = startedAt + this.#getTimeoutMs(claims);
    const quorumClaims = claims.map((claim) => this.#claims.getOrCreate(claim, startedAt));
    return this.#whileActive(quorumClaims, async () => {
      const tallies = quorumClaims.map(() => new Tally(this.#members.length));
      const calls = this.#members.flatMap((member) => this.#coordinator.renewAt(member, quorumClaims, tallies));
      await waitForMembers(calls, () => tallies.every(({ isDecided }) => isDecided), deadline - this.#time());
      // fewer than a majority: unknown of all, though votes may stand by what was said before
      const isUnknown = calls.length > 0 && tallies.every(({ hasMajorityAnswered }) => !hasMajorityAnswered);
      const known = isUnknown ? [] : quorumClaims;
      const answers = await Promise.allSettled(
        known.map((quorumClaim, index) =>
          this.#coordinator.resolveStatus(quorumClaim, tallies[index] as Tally, startedAt, deadline),
        ),
      );
      for (const quorumClaim of quorumClaims) this.#coordinator.restoreEntries(quorumClaim);
      if (isUnknown) throw (tallies[0] as Tally).failure;
      const first = answers[0];
      if (first?.status === "rejected" && answers.every(({ status }) => status === "rejected")) throw first.reason;
      // what is not known of one claim costs the others nothing
      return answers.map((answer) => (answer.status === "rejected" ? undefined : answer.value));
    });
  }

  async release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]> {
    const quorumClaims = claims.map((claim) => this.#claims.remove(claim));
    return releaseClaims(this.#members, quorumClaims, unanswered, this.#getTimeoutMs(claims));
  }

  async detach(claims: readonly Claim[], remainingMs?: number): Promise<readonly boolean[]> {
    const answers = await this.renew(claims);
    if (answers.includes(undefined)) throw new Error("quorum: where a claim stands is not known, so it stays ours");
    const held = claims.filter((_, index) => answers[index]?.state === "held");
    const quorumClaims = held.map((claim) => this.#claims.getOrCreate(claim, this.#time()));
    const detached = await detachClaims(this.#members, quorumClaims, this.#getTimeoutMs(claims), remainingMs);
    return claims.map((claim) => {
      const isDetached = detached[held.indexOf(claim)] === true;
      // what becomes of it is no business of ours any more, not even if it comes back to us
      if (isDetached) this.#claims.remove(claim);
      return isDetached;
    });
  }

  list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]> {
    return listClaims(this.#members, { filter, max, after, signal }, this.#getTimeoutMs([]));
  }

  async close(): Promise<void> {
    this.#notify = () => undefined;
    await Promise.all(this.#members.map((member) => member.close()));
  }

  get #openCount(): number {
    return this.#members.filter(({ isOpen }) => isOpen).length;
  }

  /** The core gives up on a call after a sixth of the lease. */
  #getTimeoutMs(claims: readonly Claim[]): number {
    let timeoutMs = this.#options.callTimeoutMs ?? 1_000;
    for (const { ttlMs } of claims) if (ttlMs !== "session") timeoutMs = Math.min(timeoutMs, ttlMs / 8);
    return timeoutMs;
  }

  /** While a verb is at work on them, it sees what changes; afterwards what changes is told. */
  async #whileActive<T>(quorumClaims: readonly QuorumClaim[], work: () => Promise<T>): Promise<T> {
    for (const quorumClaim of quorumClaims) quorumClaim.activeCalls++;
    try {
      return await work();
    } finally {
      for (const quorumClaim of quorumClaims) {
        quorumClaim.activeCalls--;
        this.#coordinator.onChange(quorumClaim);
      }
    }
  }

  #onPush(index: number, id: ClaimId | null, answer: Answer | undefined): void {
    const quorumClaim = id === null ? undefined : this.#claims.get(id);
    if (id === null) this.#notify(null);
    else if (quorumClaim === undefined) return;
    else if (answer === undefined) this.#notify(id);
    else if (quorumClaim.onPush(index, answer, this.#time())) this.#coordinator.onChange(quorumClaim);
    else this.#notify(id);
  }
}
