/** Takes claims out of our sessions at those members that keep them by one: on a Unix socket they would end with us. */

import type { Ballot } from "./ballot.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { ticketAt } from "./minting.ts";
import { Round } from "./round.ts";

/**
 * Says of each, all of them held, whether a majority keeps its vote without us.
 * @throws (rejects) Error if fewer than a majority have answered, or have its ticket: it would come back with another token
 */
export async function detaching(
  members: readonly Member[],
  ballots: readonly Ballot[],
  withinMs: number,
  leftMs: number | undefined,
): Promise<readonly boolean[]> {
  const majority = majorityOf(members.length);
  const kept = [...ballots, ...ballots].map(() => 0);
  const round = new Round(members.length);
  const asked = members.map((member) => {
    const all = [...ballots.map(({ claim }) => claim), ...ballots.map((ballot) => ticketAt(ballot, member.index))];
    const settled = member
      .call((driver) => driver.detach?.(all, leftMs) ?? keptAnyway(driver.renew(all)))
      .then(
        (flags) => {
          for (const at of kept.keys()) if (flags[at] === true) kept[at] = (kept[at] as number) + 1;
          round.said({ state: "none" });
        },
        (error: unknown) => round.failed(error),
      );
    return { member, settled };
  });
  await gather(asked, () => false, withinMs);
  if (!round.isHeard) throw round.failure;
  const isKept = (at: number): boolean => (kept[at] as number) >= majority;
  const lacking = ballots.some((_, at) => isKept(at) && !isKept(at + ballots.length));
  if (lacking)
    throw new Error("quorum: members that have lost a ticket have not made it again yet, so the lock stays ours");
  return ballots.map((_, at) => isKept(at));
}

async function keptAnyway(renewed: ReturnType<Member["driver"]["renew"]>): Promise<readonly boolean[]> {
  return (await renewed).map((answer) => answer?.state === "held");
}
