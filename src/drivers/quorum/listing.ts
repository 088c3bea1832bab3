/** What tools see: the claims that the members list, each once, with where a majority says it stands. */

import type { ClaimView } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { Round } from "./round.ts";
import { isTicketKey, tokensByTag } from "./tickets.ts";

/** @throws (rejects) Error if fewer than a majority of members have answered */
export async function listed(
  members: readonly Member[],
  prefix: string,
  max: number,
  after: string | undefined,
  withinMs: number,
): Promise<readonly ClaimView[]> {
  const round = new Round(members.length);
  const lists = new Map<number, readonly ClaimView[]>();
  const asked = members.map((member) => ({
    member,
    // beside each held claim stands its ticket
    settled: member
      .call((driver) => driver.list(prefix, 2 * max, after))
      .then(
        (views) => {
          lists.set(member.index, views);
          round.said({ state: "none" });
        },
        (error: unknown) => round.failed(error),
      ),
  }));
  await gather(asked, () => false, withinMs);
  if (!round.isHeard) throw round.failure;
  const inOrder = [...lists].sort(([one], [other]) => one - other).map(([, views]) => views);
  return merged(inOrder, majorityOf(members.length)).slice(0, max);
}

function merged(lists: readonly (readonly ClaimView[])[], majority: number): ClaimView[] {
  const all = lists.flat();
  const tokens = tokensByTag(
    all.filter((view) => isTicketKey(view.holds[0].key)),
    majority,
  );
  const byTag = new Map<string, ClaimView[]>();
  for (const view of all) {
    if (isTicketKey(view.holds[0].key)) continue;
    const same = byTag.get(view.tag);
    if (same === undefined) byTag.set(view.tag, [view]);
    else same.push(view);
  }
  return [...byTag.values()].map((views) => standing(views, majority, tokens));
}

/** Held if a majority says so; else it waits, whatever a minority has granted it. */
function standing(views: readonly ClaimView[], majority: number, tokens: ReadonlyMap<string, bigint>): ClaimView {
  const [first] = views as [ClaimView];
  const ageMs = Math.max(...views.map((view) => view.ageMs));
  const { heldMs: _, ...view } = first;
  const held = views.filter(({ answer }) => answer.state === "held");
  const token = tokens.get(first.tag);
  const ttls = (those: readonly ClaimView[]): number[] =>
    those.map(({ answer }) => (answer.state === "none" ? 0 : answer.ttlMs));
  if (held.length < majority || token === undefined) {
    const waits = views.map(({ answer }) => (answer.state === "waiting" ? answer.recheckMs : 1));
    return {
      ...view,
      ageMs,
      answer: { state: "waiting", ttlMs: Math.max(...ttls(views)), recheckMs: Math.min(...waits) },
    };
  }
  const heldMs = Math.min(...held.map((one) => one.heldMs ?? one.ageMs));
  const ttlMs = Math.max(...ttls(held));
  return { ...view, ageMs, heldMs, answer: { state: "held", token, tokens: view.tokens, ttlMs } };
}
