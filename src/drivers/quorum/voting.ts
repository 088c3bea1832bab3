/** How one claim is voted for at the members; what it all means stands in driver.ts. */

import type { Clock } from "../../clock.ts";
import { backoffMs } from "../../core/backoff.ts";
import { isFatal } from "../../errors.ts";
import type { Answer, ClaimId, Driver, Pause } from "../../spi/driver.ts";
import type { Ballot } from "./ballot.ts";
import { leftMs, majorityOf } from "./ballot.ts";
import type { Ballots } from "./ballots.ts";
import type { Asked, Member } from "./connection.ts";
import { gather, pause } from "./connection.ts";
import { mint, renewTickets } from "./minting.ts";
import { releasing } from "./releasing.ts";
import { Round } from "./round.ts";

const NONE: Answer = { state: "none" };

/** How often a claim that does not wait is tried when its votes are split. */
const TRIES = 3;

/** A split is left alone for a random time; its bound doubles from FIRST_YIELD failures of core/backoff.ts on. */
const FIRST_YIELD = 3;
const LONGEST_YIELD_MS = 2_000;

export interface VotingOptions {
  readonly members: readonly Member[];
  readonly ballots: Ballots;
  readonly clock: Clock;
  readonly time: () => number;
  readonly random: () => number;
  /** How long a call for this claim may take. */
  readonly patience: (ballot: Ballot) => number;
  readonly notify: (id: ClaimId, answer?: Answer) => void;
}

export class Voting {
  readonly #members: readonly Member[];
  readonly #majority: number;
  readonly #ballots: Ballots;
  readonly #time: () => number;
  readonly #random: () => number;
  readonly #options: VotingOptions;

  constructor(options: VotingOptions) {
    this.#members = options.members;
    this.#majority = majorityOf(options.members.length);
    this.#ballots = options.ballots;
    this.#time = options.time;
    this.#random = options.random;
    this.#options = options;
  }

  async placed(ballot: Ballot, until: number, attempt: number): Promise<Answer> {
    const { claim } = ballot;
    const startedAt = this.#time();
    const round = new Round(this.#members.length);
    const asked = this.#members.map((member) => this.#ask(ballot, member, round));
    await gather(asked, () => round.isDecided, until - startedAt);
    const isTie = round.paused === undefined && ballot.isSplit(this.#time());
    if (claim.wait || ballot.held(this.#time()) >= this.#majority || ballot.ticketed) {
      return this.standing(ballot, round, startedAt, until);
    }
    const answer = await this.#look(ballot, round, startedAt, until);
    if (answer.state !== "none" || ballot.over) return answer;
    // no trace: what was granted is given back, and what may still be on its way is remembered there
    await this.#giveBack(ballot, until);
    const delayMs = backoffMs(attempt, this.#random(), LONGEST_YIELD_MS);
    if (isTie && attempt < TRIES && this.#time() + delayMs < until && ballot.isClear) {
      await pause(this.#options.clock, delayMs);
      return ballot.over ? NONE : this.placed(ballot, until, attempt + 1);
    }
    this.#abandon(ballot);
    return { ...NONE, ...pauseIn(round) };
  }

  /** Nothing is held: what is still on its way is given back when it is answered, or kept for its member. */
  #abandon(ballot: Ballot): void {
    this.#ballots.take(ballot.claim);
    ballot.abandoned = true;
    for (const member of this.#members) {
      const vote = ballot.votes[member.index];
      if (vote?.lost === true || vote?.leaving === true) member.keep(ballot.claim, ballot.ttlMs);
    }
  }

  /** Asks one member for a place: the claim is sent where it has none, for all we know. */
  #ask(ballot: Ballot, member: Member, round: Round | null): Asked {
    const { claim } = ballot;
    const vote = ballot.votes[member.index] as Ballot["votes"][number];
    if (vote.leaving) {
      round?.failed(new Error(`quorum: member ${member.index} has not answered a release`));
      return { member, settled: Promise.resolve() };
    }
    const places = vote.state === "none" || vote.state === "unknown";
    const call = ++vote.sent;
    const sentAt = this.#time();
    const isSent = member.isOpen && places;
    if (isSent) vote.loose++;
    const work = async (driver: Driver): Promise<Answer> => {
      if (places) return driver.claim(claim);
      const [answer] = await driver.renew([claim]);
      if (answer === undefined) throw unheard(member);
      return answer;
    };
    const settled = member.call(work).then(
      (answer) => {
        if (isSent) vote.loose--;
        member.saw(answer, sentAt);
        ballot.answered(member.index, call, sentAt, answer, this.#time());
        round?.said(answer);
        if (ballot.abandoned && answer.state !== "none") this.#unwanted(ballot, member);
        this.changed(ballot);
      },
      (error: unknown) => {
        if (isSent) {
          vote.loose--;
          vote.lost = true;
        }
        if (ballot.abandoned) member.keep(claim, ballot.ttlMs);
        round?.failed(error);
      },
    );
    return { member, settled };
  }

  /** It was granted after all, when nobody waited for it any more. */
  #unwanted({ claim, ttlMs }: Ballot, member: Member): void {
    member.call((driver) => driver.release([claim])).catch(() => member.keep(claim, ttlMs));
  }

  /** One call for all that may have a place at this member, and one for their tickets, which nobody waits for. */
  renewed(member: Member, ballots: readonly Ballot[], rounds: readonly Round[]): Asked[] {
    const sentAt = this.#time();
    const asked = ballots.flatMap((ballot, at) => {
      const vote = ballot.votes[member.index] as Ballot["votes"][number];
      if (vote.leaving || vote.state === "none") {
        rounds[at]?.absent();
        return [];
      }
      return [{ ballot, round: rounds[at] as Round, call: ++vote.sent }];
    });
    if (asked.length === 0) return [];
    const settled = member
      .call((driver) => driver.renew(asked.map(({ ballot }) => ballot.claim)))
      .then(
        (answers) => {
          for (const [at, { ballot, round, call }] of asked.entries()) {
            const answer = answers[at];
            if (answer === undefined) {
              round.failed(unheard(member));
              continue;
            }
            member.saw(answer, sentAt);
            ballot.answered(member.index, call, sentAt, answer, this.#time());
            round.said(answer);
            this.changed(ballot);
          }
        },
        (error: unknown) => {
          for (const { round } of asked) round.failed(error);
        },
      );
    renewTickets(
      member,
      asked.map(({ ballot }) => ballot),
    );
    return [{ member, settled }];
  }

  /** Where the claim stands by all that has been heard. @throws (rejects) where that is unknown */
  async standing(ballot: Ballot, round: Round, startedAt: number, until: number): Promise<Answer> {
    const answer = await this.#look(ballot, round, startedAt, until).catch(async (error: unknown) => {
      // refused for good: nothing of it may stay
      if (isFatal(error) && ballot.isOurs && !ballot.over) await this.#end(ballot, until);
      throw error;
    });
    // "none" always means no trace
    if (answer.state === "none" && !ballot.over) await this.#end(ballot, until);
    return answer;
  }

  async #look(ballot: Ballot, round: Round, startedAt: number, until: number): Promise<Answer> {
    const now = this.#time();
    if (ballot.over) return NONE;
    if (ballot.held(now) >= this.#majority) {
      ballot.yieldAt = null;
      const agreed = await this.#minted(ballot, until);
      if (ballot.over) return NONE;
      if (agreed && ballot.held(this.#time()) >= this.#majority) return heldAs(ballot, startedAt);
      throw new Error("quorum: a majority votes for it, but has not agreed on its token yet");
    }
    const places = ballot.placed(now);
    if (ballot.ticketed || places + ballot.unknown() < this.#majority) return round.none;
    if (ballot.claim.wait ? places < this.#majority : !round.isHeard) throw round.failure;
    if (!ballot.claim.wait) return NONE;
    if (!ballot.isSplit(now)) ballot.yieldAt = null;
    else {
      ballot.yieldAt ??= now + backoffMs(FIRST_YIELD + ballot.yields, this.#random(), LONGEST_YIELD_MS);
      if (now >= ballot.yieldAt) {
        await this.#yield(ballot, until);
        // others may have moved up meanwhile, or we
        if (ballot.held(this.#time()) >= this.#majority) return this.#look(ballot, round, startedAt, until);
      }
    }
    const soon = ballot.yieldAt === null ? ballot.recheckMs() : Math.min(ballot.recheckMs(), ballot.yieldAt - now);
    const ttlMs = leftMs(ballot.placedUntil(), startedAt, ballot.ttlMs);
    return { state: "waiting", ttlMs: Math.max(ttlMs, 1), recheckMs: Math.max(soon, 1), ...pauseIn(round) };
  }

  /** Gives the votes of a split back and lines up again behind the others. */
  async #yield(ballot: Ballot, until: number): Promise<void> {
    ballot.yields++;
    ballot.yieldAt = null;
    await this.#giveBack(ballot, until);
    if (ballot.over) return; // released meanwhile
    const asked = this.#members.filter(({ index }) => ballot.votes[index]?.state === "none");
    const round = new Round(this.#members.length);
    await gather(
      asked.map((member) => this.#ask(ballot, member, round)),
      () => false,
      until - this.#time(),
    );
  }

  /** Its votes, where no `claim` of it is under way: a release must be answered before it may come there again. */
  async #giveBack(ballot: Ballot, until: number): Promise<void> {
    const { claim } = ballot;
    const given = this.#members.filter(({ index }) => {
      const vote = ballot.votes[index];
      return vote?.state === "held" && vote.loose === 0;
    });
    const asked = given.map((member) => {
      ballot.leaves(member.index);
      const left = (): void => ballot.left(member.index);
      const kept = (): void => member.keep(claim, ballot.ttlMs, left);
      return { member, settled: member.call((driver) => driver.release([claim])).then(left, kept) };
    });
    await gather(asked, () => false, until - this.#time());
  }

  async #end(ballot: Ballot, until: number): Promise<void> {
    const gone = this.#ballots.take(ballot.claim);
    const ms = Math.max(until - this.#time(), 1);
    // what a member does not answer is kept for it
    await releasing(this.#members, [gone], undefined, ms).catch(() => undefined);
  }

  /** A place that a member has lost, or never had, is asked for again; nobody waits for it. */
  repair(ballot: Ballot): void {
    // one that another client made may be released, unless a majority was found to hold it
    if (ballot.over || (!ballot.isOurs && ballot.token === null)) return;
    for (const member of this.#members) {
      const vote = ballot.votes[member.index];
      if (vote?.leaving === true) member.flush();
      else if (vote?.state === "none") this.#ask(ballot, member, null);
    }
  }

  #minted(ballot: Ballot, until: number): Promise<boolean> {
    if (ballot.token !== null) return Promise.resolve(true);
    ballot.minting ??= mint(this.#members, ballot, this.#time, until).finally(() => {
      ballot.minting = null;
    });
    return ballot.minting;
  }

  /** Something was heard while no verb looks: a majority of votes that has come together is made a grant, and pushed. */
  changed(ballot: Ballot): void {
    if (ballot.over || ballot.verbs > 0 || ballot.token !== null || ballot.minting !== null) return;
    if (ballot.held(this.#time()) < this.#majority) return;
    const { id } = ballot.claim;
    this.#minted(ballot, this.#time() + this.#options.patience(ballot)).then(
      (agreed) => {
        const now = this.#time();
        if (ballot.over) return;
        if (agreed && ballot.held(now) >= this.#majority) this.#options.notify(id, pushedAs(ballot, now));
        else this.#options.notify(id);
      },
      () => this.#options.notify(id), // asked again, it is told why
    );
  }
}

/** Unknown is not busy: too many members grant nothing new to anyone. */
function pauseIn({ paused }: Round): { readonly paused?: Pause } {
  return paused === undefined ? {} : { paused };
}

function heldAs(ballot: Ballot, startedAt: number): Answer {
  const ttlMs = leftMs(ballot.heldUntil(), startedAt, ballot.ttlMs);
  return { state: "held", token: ballot.token ?? 0n, tokens: ballot.tokens, ttlMs };
}

/** A push moves no deadline: it tells how much stands, and the core takes it for a hint if it believes in more. */
function pushedAs(ballot: Ballot, now: number): Answer {
  return { state: "held", token: ballot.token ?? 0n, tokens: ballot.tokens, ttlMs: ballot.heldUntil() - now };
}

function unheard({ index }: Member): Error {
  return new Error(`quorum: member ${index} left an answer out`);
}
