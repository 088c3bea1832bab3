/** Gives claims back at every member, their votes and tickets in one call. */

import type { Claim, ClaimId } from "../../spi/driver.ts";
import type { Ballot } from "./ballot.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { Round } from "./round.ts";
import { ticketAgain, ticketOf } from "./tickets.ts";

/**
 * Says of each whether a majority still had it. What a member has not answered it is told when it answers again.
 * @throws (rejects) Error if fewer than a majority have answered
 */
export async function releasing(
  members: readonly Member[],
  ballots: readonly Ballot[],
  unanswered: ReadonlySet<ClaimId> | undefined,
  withinMs: number,
): Promise<readonly boolean[]> {
  const majority = majorityOf(members.length);
  const there = ballots.map(() => 0);
  const round = new Round(members.length);
  const asked = members.map((member) => {
    const { claims, loose } = leaving(ballots, member.index, unanswered);
    const settled = member
      .call((driver) => (loose.size > 0 ? driver.release(claims, loose) : driver.release(claims)))
      .then(
        (flags) => {
          for (const at of there.keys()) if (flags[at] === true) there[at] = (there[at] as number) + 1;
          round.said({ state: "none" });
        },
        (error: unknown) => {
          round.failed(error);
          for (const claim of claims) member.keep(claim, claim.ttlMs === "session" ? 0 : claim.ttlMs);
        },
      );
    return { member, settled };
  });
  const isClear = (had: number): boolean => had >= majority || round.answered - had > members.length - majority;
  const isDecided = (): boolean =>
    round.errors.length > members.length - majority || (round.isHeard && there.every(isClear));
  await gather(asked, isDecided, withinMs);
  if (!round.isHeard) throw round.failure;
  return there.map((had) => had > 0 && round.answered - had <= members.length - majority);
}

/** What is released at one member: first the votes, in the order of the ballots, then the tickets. */
function leaving(
  ballots: readonly Ballot[],
  index: number,
  unanswered: ReadonlySet<ClaimId> | undefined,
): { readonly claims: readonly Claim[]; readonly loose: ReadonlySet<ClaimId> } {
  const loose = new Set<ClaimId>();
  const votes = ballots.map(({ claim }) => claim);
  const tickets: Claim[] = [];
  for (const { claim, votes: known, ticketed, isOurs } of ballots) {
    const vote = known[index];
    // of a claim that another client made, or that was released before, nothing is known: any call may be on its way
    const isLoose = !isOurs || unanswered?.has(claim.id) === true;
    if (isLoose || (vote?.loose ?? 0) > 0 || vote?.lost === true) loose.add(claim.id);
    if (!ticketed && isOurs) continue;
    const again = isOurs && vote?.ticketAgain !== true ? [] : [ticketAgain(claim, 0n)];
    for (const ticket of [ticketOf(claim, 0n), ...again]) {
      tickets.push(ticket);
      if (!isOurs || (vote?.ticketLoose ?? 0) > 0) loose.add(ticket.id);
    }
  }
  return { claims: [...votes, ...tickets], loose };
}
