/** One token for a grant, given by a majority of members. See tickets.ts for how, and driver.ts for why it rises. */

import { isFatal } from "../../errors.ts";
import type { Answer, Claim } from "../../spi/driver.ts";
import type { Ballot } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { agreed, LEAD, ticketOf } from "./tickets.ts";

/** How often a higher floor is tried when the members' tokens differ; never for a claim of another client, whose tickets would go. */
const RAISES = 3;

/**
 * Did a majority agree? Then the ballot has its token.
 * @throws (rejects) FatalDriverError where so many members say that the floor cannot be reached that no majority is left
 */
export function mint(members: readonly Member[], ballot: Ballot, time: () => number, until: number): Promise<boolean> {
  let highest = ballot.floor - LEAD;
  for (const { index, aheadMs } of members) {
    const clock = aheadMs === null ? ballot.clockBy(index) : BigInt(Math.ceil((time() + aheadMs) * 1_000));
    if (clock > highest) highest = clock;
  }
  return mintFrom(members, ballot, highest + LEAD, () => until - time(), ballot.isOurs ? RAISES : 0);
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
  if (ballot.isOurs) ballot.ticketed = true;
  const found = (): ReturnType<typeof agreed> => agreed([...answers.values()], ballot.majority);
  const asked = members.map((member) => {
    const vote = ballot.votes[member.index] as Ballot["votes"][number];
    const isSent = member.isOpen;
    if (isSent) vote.ticketLoose++;
    const settled = member
      .call((driver) => driver.claim(ticket))
      .then(
        (answer) => {
          if (isSent) vote.ticketLoose--;
          answers.set(member, answer);
        },
        (error: unknown) => void errors.push(error),
      );
    return { member, settled };
  });
  await gather(asked, () => found() !== null, leftMs());
  const run = found();
  if (run !== null && run.token >= ballot.floor) {
    ballot.token = run.token;
    ballot.tokens = run.tokens;
    ballot.ticketed = true;
    return true;
  }
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
  let highest = floor;
  for (const answer of answers) {
    if (answer.state === "held" && answer.token + BigInt(answer.tokens) > highest) {
      highest = answer.token + BigInt(answer.tokens);
    }
  }
  return highest;
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
