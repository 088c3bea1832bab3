/** Takes claims out of our sessions at those members that keep them by one: on a Unix socket they would end with us. */

import type { Claim } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { Round } from "./round.ts";
import { ticketOf } from "./tickets.ts";

/**
 * Says of each claim, all of them held, whether a majority keeps its vote without us.
 * @throws (rejects) Error if fewer than a majority have answered, or have its ticket: it would come back with another token
 */
export async function detaching(
  members: readonly Member[],
  claims: readonly Claim[],
  withinMs: number,
): Promise<readonly boolean[]> {
  const all = [...claims, ...claims.map((claim) => ticketOf(claim, 0n))];
  const majority = majorityOf(members.length);
  const kept = all.map(() => 0);
  const round = new Round(members.length);
  const asked = members.map((member) => ({
    member,
    settled: member
      .call((driver) => driver.detach?.(all) ?? keptAnyway(driver.renew(all)))
      .then(
        (flags) => {
          for (const at of kept.keys()) if (flags[at] === true) kept[at] = (kept[at] as number) + 1;
          round.said({ state: "none" });
        },
        (error: unknown) => round.failed(error),
      ),
  }));
  await gather(asked, () => false, withinMs);
  if (!round.isHeard) throw round.failure;
  const isKept = (at: number): boolean => (kept[at] as number) >= majority;
  const lacking = claims.some((_, at) => isKept(at) && !isKept(at + claims.length));
  if (lacking)
    throw new Error("quorum: members that have lost a ticket have not made it again yet, so the lock stays ours");
  return claims.map((_, at) => isKept(at));
}

async function keptAnyway(renewed: ReturnType<Member["driver"]["renew"]>): Promise<readonly boolean[]> {
  return (await renewed).map((answer) => answer?.state === "held");
}
