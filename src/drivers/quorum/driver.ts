/**
 * Locks by a majority of several independent stores (N = 3, 5, ...), each with its own driver: a minority of them may
 * be down, slow, or empty. Works over all drivers whose claims have leases and tokens.
 *
 * A claim has an entry in its key's queue at every member, under its own id: its member claims (member-claim.ts). An
 * entry that its member has granted is a vote.
 *
 *   asking   the members are being asked; fewer than a majority have answered: unknown, never "busy"
 *   waiting  a majority of members has an entry; fewer than a majority of the entries are votes
 *   voted    a majority of the entries are votes; the members are agreeing on the token (tokens.ts)
 *   held     a majority of members has given one token; "held" is answered, or pushed, only now
 *   none     a majority of entries is no longer possible; the remaining ones are released
 *
 * Invariants
 * - Exclusion: held means that a majority of votes is valid, each by this client's clock, counted from when its own
 *   call was SENT to that member (so the lease is that of the oldest send among the latest majority). Any two
 *   majorities share a member, which never grants two exclusive claims. This does not hold for a semaphore (2 permits
 *   at 3 members admit three holders by pairs), so permits are "shared" only: readers and writers.
 * - Tokens rise: a token belongs to the grant when a majority of members has reserved that same token for it, by a
 *   token claim made after a majority of votes was valid. A later grant makes its token claim after that, at a majority
 *   that shares a member with the earlier one; that member's tokens rise, and the later token is one of its own. This
 *   is the write-back of the highest token: one more round trip before a grant is reported.
 * - A claim that has made a token claim and then loses its majority of votes has ended: it could find its old token
 *   claim again.
 * - Order is that of arrival while members see claims in one order. Otherwise each claim may have some votes and none a
 *   majority (a split): after a random time a claim releases its votes and enqueues again there, until one claim has a
 *   majority. So `fifo` is false. A claim that does not wait tries three times.
 * - An entry that a member has lost (restarted empty) or never had (it was down) is made again by the next renewal,
 *   behind the entries already there. A grant whose votes fall below a majority is lost, whatever its token.
 * - A release always takes effect: it is answered when a majority has answered; a member that has not answered gets it
 *   again as soon as it answers anything (member.ts), or its entry ends with its lease.
 * - Every call is bounded by an eighth of the lease (and callTimeoutMs), and settles as soon as a majority holds or
 *   cannot hold. Claims have no timers: the client rechecks when an answer says so.
 */

import { StoreRefusedError, safeListener } from "../../errors.ts";
import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  TokenRange,
  Traits,
} from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import { createSuspendAwareTime } from "../../util/suspend-detector.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  clockRule,
  driverRule,
  functionRule,
  millisecondsRule,
  requireValid,
  timeoutRule,
  validateOptions,
} from "../../util/validate.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import { AnswerCount } from "./answer-count.ts";
import { ClaimCoordinator } from "./claims.ts";
import { listClaims } from "./list.ts";
import { Member, waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { QuorumClaims, toMajority } from "./quorum-claim.ts";
import { detachClaims, releaseClaims } from "./releases.ts";
import { Tally } from "./tally.ts";
import { createReplacementTokenClaim, createTokenClaim, isTokenKey } from "./tokens.ts";

/** Options of the quorum driver. */
export interface QuorumOptions {
  /** How long to wait for a member's answer, in milliseconds; never more than an eighth of a lease. Default 1 s. */
  readonly callTimeoutMs?: number;
  /** How long the first connection to a majority may take. Default 5 s. */
  readonly connectTimeout?: Duration;
  /**
   * Called with a member's index and the error when it fails, and with null when it answers again. Default: not called.
   */
  readonly onMember?: (member: number, error: unknown) => void;
  /** For tests. Default: the system clock. */
  readonly clock?: Clock;
  /** Numbers from 0 to 1, for the jitter of splits. Default Math.random. */
  readonly random?: () => number;
}

const OPTION_RULES: OptionRules<QuorumOptions> = {
  callTimeoutMs: millisecondsRule(),
  connectTimeout: timeoutRule("connectTimeout"),
  onMember: functionRule,
  clock: clockRule,
  random: functionRule,
};

/** How long open() waits for the other members once it has reached a majority. */
const REMAINING_MEMBERS_MS = 200;

const TRAITS: Omit<Traits, "recall"> = {
  lease: { claim: true },
  manyKeys: false,
  permits: "shared",
  fencing: true,
  fifo: false,
  durability: "failover",
};

/**
 * A driver whose locks are held by a majority of `drivers` (an odd number, 3 or more). These must be independent
 * stores; they are opened and closed with it. Not for semaphores, and not for claims of several keys at once (the
 * client claims those keys one after another).
 * @throws TypeError naming the argument if drivers or an option is wrong
 */
export function quorum(drivers: readonly Driver[], options: QuorumOptions = {}): Driver {
  if (!Array.isArray(drivers) || drivers.length < 3 || drivers.length % 2 === 0) {
    throw new TypeError("drivers must be an odd number of drivers, 3 or more");
  }
  if (new Set(drivers).size !== drivers.length)
    throw new TypeError("drivers must be distinct: each must be a separate store");
  for (const [index, driver] of drivers.entries()) requireValid(driver, `drivers[${index}]`, driverRule);
  validateOptions("quorum", options, OPTION_RULES);
  return new QuorumDriver(drivers, options);
}

class QuorumDriver implements Driver {
  readonly name = "quorum";
  readonly #members: readonly Member[];
  readonly #majority: number;
  readonly #options: QuorumOptions;
  readonly #time: () => number;
  readonly #claims: QuorumClaims;
  readonly #coordinator: ClaimCoordinator;
  /** null: not open. */
  #events: DriverEvents | null = null;

  constructor(drivers: readonly Driver[], options: QuorumOptions) {
    this.#options = options;
    const clock = options.clock ?? systemClock;
    this.#time = createSuspendAwareTime(clock);
    this.#majority = toMajority(drivers.length);
    this.#claims = new QuorumClaims(drivers.length);
    const onPush = (index: number, id: ClaimId | null, answer?: Answer): void => this.#onPush(index, id, answer);
    const onRecalled = (index: number, id: ClaimId): void => this.#onRecalled(index, id);
    const onDisconnected = (index: number): void => this.#onDisconnected(index);
    const heldTokens = (index: number, id: ClaimId): TokenRange | null =>
      this.#claims.get(id)?.heldTokens(index, this.#time()) ?? null;
    const onHealthChange = safeListener(options.onMember ?? (() => undefined));
    const events = { onPush, onRecalled, onDisconnected, onHealthChange, heldTokens };
    this.#members = drivers.map((driver, index) => new Member({ index, driver, clock, time: this.#time, ...events }));
    this.#coordinator = new ClaimCoordinator({
      members: this.#members,
      claims: this.#claims,
      clock,
      time: this.#time,
      random: options.random ?? Math.random,
      getTimeoutMs: ({ claim }) => this.#getTimeoutMs([claim]),
      pushed: (id, answer) => this.#events?.pushed(id, answer),
      recheck: (id) => this.#events?.recheck(id),
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const errors: unknown[] = [];
    const calls = this.#members.map((member) => ({
      member,
      settled: member.open().catch((error: unknown) => void errors.push(error)),
    }));
    const minority = this.#members.length - this.#majority;
    const isDecided = (): boolean => this.#openCount >= this.#majority || errors.length > minority;
    for (const { member } of calls) member.isSuspect = false; // at first all are waited for
    await waitForMembers(calls, isDecided, toConnectTimeoutMs(this.#options.connectTimeout));
    const invalidMember = errors.find((error) => error instanceof TypeError);
    if (this.#openCount >= this.#majority && invalidMember === undefined) {
      // wait briefly for the others, so that they vote on the first claims, too
      await waitForMembers(calls, () => this.#openCount + errors.length === calls.length, REMAINING_MEMBERS_MS);
      this.#events = events;
      const hidesBreaks = this.#members.some(({ reportsBreaks }) => reportsBreaks === false);
      return { ...TRAITS, recall: this.#recall, ...(hidesBreaks && { reportsBreaks: false }) };
    }
    const count = new AnswerCount(this.#members.length);
    for (const { isOpen } of this.#members) if (isOpen) count.addAnswered();
    await this.close();
    for (const error of errors) count.addError(error);
    throw invalidMember ?? count.failure;
  }

  async claim(claim: Claim): Promise<Answer> {
    const [{ key }] = claim.locks;
    if (isTokenKey(key)) throw new StoreRefusedError(`quorum: the key ${JSON.stringify(key)} is reserved for tokens`);
    const quorumClaim = this.#claims.getOrCreate(claim);
    quorumClaim.isOurs = true;
    return this.#whileActive([quorumClaim], () =>
      this.#coordinator.claim(quorumClaim, this.#time() + this.#getTimeoutMs([claim])),
    );
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const startedAt = this.#time();
    const deadline = startedAt + this.#getTimeoutMs(claims);
    const quorumClaims = claims.map((claim) => this.#claims.getOrCreate(claim));
    return this.#whileActive(quorumClaims, async () => {
      const tallies = quorumClaims.map(() => new Tally(this.#members.length));
      const calls = this.#members.flatMap((member) => this.#coordinator.renewAt(member, quorumClaims, tallies));
      await waitForMembers(calls, () => tallies.every(({ isDecided }) => isDecided), deadline - this.#time());
      // fewer than a majority have answered: every claim is unknown, even if earlier votes are still valid
      const isUnknown = calls.length > 0 && tallies.every(({ count }) => !count.hasMajorityAnswered);
      const claimsToResolve = isUnknown ? [] : quorumClaims;
      const answers = await Promise.allSettled(
        claimsToResolve.map((quorumClaim, index) =>
          this.#coordinator.resolveStatus(quorumClaim, { tally: tallies[index] as Tally, startedAt, deadline }),
        ),
      );
      for (const quorumClaim of quorumClaims) this.#coordinator.restoreEntries(quorumClaim);
      if (isUnknown) throw (tallies[0] as Tally).count.failure;
      const first = answers[0];
      if (first?.status === "rejected" && answers.every(({ status }) => status === "rejected")) throw first.reason;
      // an unknown claim must not fail the others
      return answers.map((answer) => (answer.status === "rejected" ? undefined : answer.value));
    });
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    const quorumReleases = releases.map(({ claim, hasUnansweredClaim }) => ({
      quorumClaim: this.#claims.remove(claim),
      hasUnansweredClaim,
    }));
    return releaseClaims(this.#members, quorumReleases, this.#getTimeoutMs(releases.map(({ claim }) => claim)));
  }

  /** Members may still answer calls, and get releases that they have not answered. */
  forget(claim: Claim): void {
    this.#claims.remove(claim);
    for (const { driver } of this.#members)
      for (const memberClaim of listMemberClaims(claim)) driver.forget?.(memberClaim);
  }

  async detach(claims: readonly Claim[], remainingMs?: number): Promise<readonly boolean[]> {
    const answers = await this.renew(claims);
    if (answers.includes(undefined)) throw new Error("quorum: cannot detach: the state of a claim is unknown");
    const held = claims.filter((_, index) => answers[index]?.state === "held");
    const quorumClaims = held.map((claim) => this.#claims.getOrCreate(claim));
    const detached = await detachClaims(this.#members, quorumClaims, this.#getTimeoutMs(claims), remainingMs);
    return claims.map((claim) => {
      const isDetached = detached[held.indexOf(claim)] === true;
      // forget its member claims: after a later attach() in this process they would be out of date
      if (isDetached) this.#claims.remove(claim);
      return isDetached;
    });
  }

  list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
    return listClaims(this.#members, query, options, this.#getTimeoutMs([]));
  }

  async close(): Promise<void> {
    this.#events = null;
    await Promise.all(this.#members.map((member) => member.close()));
  }

  setIdle(claim: Claim, isIdle: boolean): void {
    for (const { driver } of this.#members)
      for (const memberClaim of listMemberClaims(claim)) driver.setIdle?.(memberClaim, isIdle);
  }

  /**
   * Of members that have never been open nothing is known. With fewer than a majority that recall, all votes of a
   * holder may be at the others.
   */
  get #recall(): Traits["recall"] {
    if (this.#members.every(({ recall }) => recall === "push")) return "push";
    return this.#members.filter(({ recall }) => recall !== false).length >= this.#majority ? "recheck" : false;
  }

  get #openCount(): number {
    return this.#members.filter(({ isOpen }) => isOpen).length;
  }

  /** The client gives up on a call after a sixth of the lease. */
  #getTimeoutMs(claims: readonly Claim[]): number {
    let timeoutMs = this.#options.callTimeoutMs ?? 1_000;
    for (const { ttlMs } of claims) if (ttlMs !== "session") timeoutMs = Math.min(timeoutMs, ttlMs / 8);
    return timeoutMs;
  }

  /** While a verb handles these claims it sees their changes itself; after it onChange() pushes them. */
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

  /** One is enough: when the next one breaks, this one may be back, without its claims. */
  #onDisconnected(index: number): void {
    this.#claims.onDisconnected(index);
    this.#events?.disconnected();
  }

  #onRecalled(index: number, id: ClaimId): void {
    const quorumClaim = this.#claims.get(id);
    // before the claim is granted the recall stays with the vote, and the grant says it
    if (quorumClaim?.onRecalled(index) && quorumClaim.tokens !== null) this.#events?.recalled(id);
  }

  #onPush(index: number, id: ClaimId | null, answer: Answer | undefined): void {
    const quorumClaim = id === null ? undefined : this.#claims.get(id);
    if (id === null) this.#events?.reconnected();
    else if (quorumClaim === undefined) return;
    else if (answer === undefined) this.#events?.recheck(id);
    else if (quorumClaim.onPush(index, answer, this.#time())) this.#coordinator.onChange(quorumClaim);
    else this.#events?.recheck(id);
  }
}

/** All claims that a member may have for one of this driver: the vote, its token claim, and the replacement of that. */
function listMemberClaims(claim: Claim): readonly Claim[] {
  return [claim, createTokenClaim(claim, 0n), createReplacementTokenClaim(claim, 0n)];
}
