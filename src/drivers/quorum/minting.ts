/**
 * One token for a grant, given by a majority of members. See tickets.ts for how, and driver.ts for why it rises. It is
 * found again as long as the claim is renewed: a ticket that a member has lost is made again there.
 */

import { isFatal } from "../../errors.ts";
import { tagOf } from "../../ids.ts";
import type { Answer, Claim, ClaimView } from "../../spi/driver.ts";
import type { Ballot, Vote } from "./ballot.ts";
import type { Asked, Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { everything } from "./listing.ts";
import type { Run as Agreed } from "./tickets.ts";
import { agreed, LEAD, tagOfTicket, ticketAgain, ticketOf, tokensByTag } from "./tickets.ts";

/** How often a higher floor is tried when the members' tokens differ. */
const RAISES = 3;

/** Microseconds; members refuse floors that are a day ahead of their clocks. */
const HALF_DAY = 43_200_000_000n;

type Run = Agreed | null;

/**
 * Did a majority agree? Then the ballot has its token.
 * @throws (rejects) FatalDriverError where so many members say that the floor cannot be reached that no majority is left
 */
export async function mint(
  members: readonly Member[],
  ballot: Ballot,
  time: () => number,
  until: number,
): Promise<boolean> {
  const leftMs = (): number => until - time();
  if (!ballot.isOurs) {
    const found = await foundAgain(members, ballot, leftMs);
    if (found !== "none") return settles(ballot, found);
  }
  const clocks = members.flatMap(({ index, aheadMs }) => {
    const clock = aheadMs === null ? ballot.clockBy(index) : BigInt(Math.ceil((time() + aheadMs) * 1_000));
    return clock === 0n ? [] : [clock];
  });
  const highest = highestOf([ballot.floor - LEAD, ...clocks], sane(clocks, ballot.majority));
  return mintFrom(members, ballot, highest + LEAD, leftMs, ballot.isOurs ? RAISES : 0);
}

/** What lies above it is of a clock that no majority is near to: a floor made of it would be refused by the others. */
function sane(clocks: readonly bigint[], majority: number): bigint {
  const falling = clocks.toSorted((one, other) => (one < other ? 1 : -1));
  return (falling[Math.min(majority, falling.length) - 1] ?? 0n) + HALF_DAY;
}

function highestOf([first, ...others]: readonly [bigint, ...bigint[]], bound: bigint): bigint {
  return others.reduce((highest, one) => (one > highest && one <= bound ? one : highest), first);
}

function settles(ballot: Ballot, run: Run): boolean {
  if (run === null || run.token < ballot.floor) return false;
  ballot.token = run.token;
  ballot.tokens = run.tokens;
  ballot.ticketed = true;
  return true;
}

/**
 * The token of another client's grant, of which no ticket is made here: it could be taken for that client's. "none": a
 * majority has none of it, so it never had a token.
 */
async function foundAgain(members: readonly Member[], ballot: Ballot, leftMs: () => number): Promise<Run | "none"> {
  const ticket = ticketOf(ballot.claim, 0n);
  const answers: Answer[] = [];
  const asked = members.map((member): Asked => {
    const heard = ([answer]: readonly (Answer | undefined)[]): void => {
      if (answer !== undefined) answers.push(answer);
    };
    return { member, settled: member.call((driver) => driver.renew([ticket])).then(heard, () => undefined) };
  });
  // where they differ there is no use in waiting for more
  await gather(asked, () => answers.length >= ballot.majority, leftMs());
  return agreed(answers, ballot.majority) ?? told(members, ballot, leftMs);
}

/** The same where tickets were made again: only lists tell what they were. */
async function told(members: readonly Member[], ballot: Ballot, leftMs: () => number): Promise<Run | "none"> {
  const [{ key }] = ticketOf(ballot.claim, 0n).holds;
  const tag = tagOf(ballot.claim.id);
  const lists: ClaimView[][] = [];
  const found = (): Run => tokensByTag(lists.flat(), ballot.majority).get(tag) ?? null;
  const asked = members.map((member): Asked => {
    const heard = (views: readonly ClaimView[]): void => {
      lists.push(views.filter((view) => tagOfTicket(view) === tag));
    };
    return { member, settled: member.call((driver) => everything(driver, { key })).then(heard, () => undefined) };
  });
  await gather(asked, () => found() !== null, leftMs());
  const without = lists.filter((views) => views.length === 0).length;
  return without >= ballot.majority ? "none" : found();
}

async function mintFrom(
  members: readonly Member[],
  ballot: Ballot,
  floor: bigint,
  leftMs: () => number,
  raises: number,
): Promise<boolean> {
  const ticket = ticketOf(ballot.claim, floor);
  const answers = new Map<Member, Answer>();
  const errors: unknown[] = [];
  ballot.ticketed = true;
  const found = (): Run => agreed([...answers.values()], ballot.majority);
  const asked = members.map((member) => {
    const settled = claimed(member, ballot, ticket).then(
      (answer) => void answers.set(member, answer),
      (error: unknown) => void errors.push(error),
    );
    return { member, settled };
  });
  await gather(asked, () => found() !== null, leftMs());
  if (settles(ballot, found())) return true;
  const fatal = errors.filter(isFatal);
  if (fatal.length > members.length - ballot.majority) throw fatal[0];
  if (raises === 0 || answers.size < ballot.majority || ballot.over) return false;
  // a counter is ahead of the floor at some member: all begin anew above it
  await givenBack([...answers.keys()], ticket, leftMs());
  return ballot.over
    ? false
    : mintFrom(members, ballot, above([...answers.values()], floor) + LEAD, leftMs, raises - 1);
}

function above(answers: readonly Answer[], floor: bigint): bigint {
  const ends = answers.map((answer) => (answer.state === "held" ? answer.token + BigInt(answer.tokens) : 0n));
  return highestOf([floor, ...ends], floor + HALF_DAY);
}

async function givenBack(members: readonly Member[], ticket: Claim, withinMs: number): Promise<void> {
  const asked = members.map((member) => ({
    member,
    // one that did not let it go finds it again, with its old token, which then is not the one agreed on
    settled: member
      .call((driver) => driver.release([ticket]))
      .then(
        () => undefined,
        () => undefined,
      ),
  }));
  await gather(asked, () => false, withinMs);
}

/** The claims whose token is known keep their tickets there; one that is gone, or tells another, is made again. Nobody waits for it. */
export function renewTickets(member: Member, ballots: readonly Ballot[]): void {
  const granted = ballots.filter(({ token }) => token !== null);
  if (granted.length === 0) return;
  const made = (answers: readonly (Answer | undefined)[]): void => {
    for (const [at, ballot] of granted.entries()) {
      const { claim, token, over } = ballot;
      const vote = ballot.votes[member.index] as Vote;
      const answer = answers[at];
      const differs = answer?.state === "held" && !vote.ticketAgain && answer.token !== token;
      if ((answer?.state !== "none" && !differs) || over || token === null) continue;
      vote.ticketAgain = true;
      claimed(member, ballot, ticketAgain(claim, token)).catch(() => undefined); // the next renewal tries again
    }
  };
  const tickets = granted.map((ballot) => ticketAt(ballot, member.index));
  member.call((driver) => driver.renew(tickets)).then(made, () => undefined);
}

/** The ticket that a member has, for all we know. */
export function ticketAt({ claim, votes }: Ballot, index: number): Claim {
  return votes[index]?.ticketAgain === true ? ticketAgain(claim, 0n) : ticketOf(claim, 0n);
}

/** A ticket is asked for at one member. One that is not answered may come late. */
async function claimed(member: Member, ballot: Ballot, ticket: Claim): Promise<Answer> {
  const vote = ballot.votes[member.index] as Vote;
  const isSent = member.isOpen;
  if (isSent) vote.ticketLoose++;
  const answer = await member.call((driver) => driver.claim(ticket));
  if (isSent) vote.ticketLoose--;
  return answer;
}
