/** What tools see: the claims that the members list, each once, with where a majority says it stands. */

import type { ClaimView, Driver, ListFilter } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";
import type { Member } from "./connection.ts";
import { gather } from "./connection.ts";
import { Round } from "./round.ts";
import type { Run } from "./tickets.ts";
import { FAR_TICKETS, hasFarTicket, isTicketKey, ticketKey, tokensByTag } from "./tickets.ts";

/** Asked of a member at first; tickets are among them. */
const AT_FIRST = 1_000;

interface Wanted {
  readonly filter: ListFilter;
  readonly max: number;
  readonly after: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/**
 * Members may have a line in different orders, and not all of them every claim yet: there is no cursor that they share.
 * Each is read in whole, and the pages are cut from what they say together, in an order that none of them decides. In
 * one piece the holder comes first, then those who have waited longest.
 * @throws (rejects) Error if fewer than a majority of members have answered
 */
export async function listed(
  members: readonly Member[],
  { filter, max, after, signal }: Wanted,
  withinMs: number,
): Promise<readonly ClaimView[]> {
  const round = new Round(members.length);
  const lists = new Map<number, readonly ClaimView[]>();
  const asked = members.map((member) => ({
    member,
    settled: member
      .call((driver) => whole(driver, filter, signal))
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
  const all = merged([...lists.values()], majorityOf(members.length));
  // nobody asks for what comes behind a page that is not full
  if (after === undefined && all.length < max) return all.sort(byStanding);
  all.sort(byTag);
  // a cursor whose claim is gone starts again
  const start = all.findIndex(({ tag }) => tag === after) + 1;
  return all.slice(start, start + max);
}

/** The claims and their tickets. */
async function whole(
  driver: Driver,
  filter: ListFilter,
  signal: AbortSignal | undefined,
): Promise<readonly ClaimView[]> {
  const all = (which: ListFilter): Promise<readonly ClaimView[]> => everything(driver, which, signal);
  if (filter.key !== undefined) {
    return (await Promise.all([all(filter), all({ key: ticketKey(filter.key) })])).flat();
  }
  const views = await all(filter);
  const isFar = !FAR_TICKETS.startsWith(filter.prefix) && views.some(({ holds: [{ key }] }) => hasFarTicket(key));
  return isFar ? [...views, ...(await all({ prefix: FAR_TICKETS }))] : views;
}

/** Not by pages: a claim that goes would take the cursor with it. */
export async function everything(
  driver: Driver,
  filter: ListFilter,
  signal?: AbortSignal,
  most: number = AT_FIRST,
): Promise<readonly ClaimView[]> {
  signal?.throwIfAborted();
  const views = await driver.list(filter, most, undefined, signal);
  return views.length < most ? views : everything(driver, filter, signal, most * 4);
}

function byStanding(one: ClaimView, other: ClaimView): number {
  const waits = ({ answer }: ClaimView): number => (answer.state === "held" ? 0 : 1);
  return byKey(one, other) || waits(one) - waits(other) || other.ageMs - one.ageMs;
}

function byTag(one: ClaimView, other: ClaimView): number {
  return byKey(one, other) || (one.tag < other.tag ? -1 : 1);
}

function byKey(one: ClaimView, other: ClaimView): number {
  const [a, b] = [one.holds[0].key, other.holds[0].key];
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function merged(lists: readonly (readonly ClaimView[])[], majority: number): ClaimView[] {
  const all = lists.flat();
  const tokens = tokensByTag(
    all.filter((view) => isTicketKey(view.holds[0].key)),
    majority,
  );
  const claims = new Map<string, ClaimView[]>();
  for (const view of all) {
    if (isTicketKey(view.holds[0].key)) continue;
    const same = claims.get(view.tag);
    if (same === undefined) claims.set(view.tag, [view]);
    else same.push(view);
  }
  return [...claims.values()].map((views) => standing(views, majority, tokens));
}

/** Held if a majority says so; else it waits, whatever a minority has granted it. */
function standing(views: readonly ClaimView[], majority: number, tokens: ReadonlyMap<string, Run>): ClaimView {
  const [first] = views as [ClaimView];
  const ageMs = Math.max(...views.map((view) => view.ageMs));
  const { heldMs: _, ...view } = first;
  const held = views.filter(({ answer }) => answer.state === "held");
  const token = tokens.get(first.tag)?.token;
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
