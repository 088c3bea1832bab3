/** Takes claims out of our sessions at those members that keep them by one: on a Unix socket they would end with us. */

import type { Claim } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { Round } from "./round.ts";
import { ticketOf } from "./tickets.ts";

/**
 * Says of each claim, all of them held, whether a majority keeps its vote without us, and a majority its ticket: else it
 * would come back with another token.
 * @throws (rejects) Error if fewer than a majority have answered
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
  return claims.map((_, at) => Math.min(kept[at] as number, kept[at + claims.length] as number) >= majority);
}

async function keptAnyway(renewed: ReturnType<Member["driver"]["renew"]>): Promise<readonly boolean[]> {
  return (await renewed).map((answer) => answer?.state === "held");
}
