/** What tools see: the claims that the members list, each once, with where a majority says it stands. */

import type { ClaimView, Driver, ListFilter } from "../../spi/driver.ts";
import type { Member } from "./member.ts";
import { waitForMembers } from "./member.ts";
import { toMajority } from "./quorum-claim.ts";
import { Tally } from "./tally.ts";
import type { TokenRun } from "./token-claims.ts";
import { findRunsByTag, HASHED_TOKEN_KEY_PREFIX, hasHashedTokenKey, isTokenKey, toTokenKey } from "./token-claims.ts";

/** Asked of a member at first; tickets are among them. */
const FIRST_PAGE_SIZE = 1_000;

interface ListQuery {
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
export async function listClaims(
  members: readonly Member[],
  { filter, max, after, signal }: ListQuery,
  timeoutMs: number,
): Promise<readonly ClaimView[]> {
  const tally = new Tally(members.length);
  const lists = new Map<number, readonly ClaimView[]>();
  const calls = members.map((member) => ({
    member,
    settled: member
      .call((driver) => listMember(driver, filter, signal))
      .then(
        (views) => {
          lists.set(member.index, views);
          tally.add({ state: "none" });
        },
        (error: unknown) => tally.addError(error),
      ),
  }));
  await waitForMembers(calls, () => false, timeoutMs);
  if (!tally.hasMajorityAnswered) throw tally.failure;
  const mergedViews = mergeLists([...lists.values()], toMajority(members.length));
  // nobody asks for what comes behind a page that is not full
  if (after === undefined && mergedViews.length < max) return mergedViews.sort(compareByStatus);
  mergedViews.sort(compareByTag);
  // a cursor whose claim is gone starts again
  const start = mergedViews.findIndex(({ tag }) => tag === after) + 1;
  return mergedViews.slice(start, start + max);
}

/** The claims and their tickets. */
async function listMember(
  driver: Driver,
  filter: ListFilter,
  signal: AbortSignal | undefined,
): Promise<readonly ClaimView[]> {
  const listFilter = (part: ListFilter): Promise<readonly ClaimView[]> => listAll(driver, part, signal);
  if (filter.key !== undefined) {
    return (await Promise.all([listFilter(filter), listFilter({ key: toTokenKey(filter.key) })])).flat();
  }
  const views = await listFilter(filter);
  const hasHashedKeys =
    !HASHED_TOKEN_KEY_PREFIX.startsWith(filter.prefix) && views.some(({ holds: [{ key }] }) => hasHashedTokenKey(key));
  return hasHashedKeys ? [...views, ...(await listFilter({ prefix: HASHED_TOKEN_KEY_PREFIX }))] : views;
}

/** Not by pages: a claim that goes would take the cursor with it. */
export async function listAll(
  driver: Driver,
  filter: ListFilter,
  signal?: AbortSignal,
  max: number = FIRST_PAGE_SIZE,
): Promise<readonly ClaimView[]> {
  signal?.throwIfAborted();
  const views = await driver.list(filter, max, undefined, signal);
  return views.length < max ? views : listAll(driver, filter, signal, max * 4);
}

function compareByStatus(left: ClaimView, right: ClaimView): number {
  const rank = ({ answer }: ClaimView): number => (answer.state === "held" ? 0 : 1);
  return compareByKey(left, right) || rank(left) - rank(right) || right.ageMs - left.ageMs;
}

function compareByTag(left: ClaimView, right: ClaimView): number {
  return compareByKey(left, right) || (left.tag < right.tag ? -1 : 1);
}

function compareByKey(left: ClaimView, right: ClaimView): number {
  const [leftKey, rightKey] = [left.holds[0].key, right.holds[0].key];
  if (leftKey === rightKey) return 0;
  return leftKey < rightKey ? -1 : 1;
}

function mergeLists(lists: readonly (readonly ClaimView[])[], majority: number): ClaimView[] {
  const allViews = lists.flat();
  const tokens = findRunsByTag(
    allViews.filter((view) => isTokenKey(view.holds[0].key)),
    majority,
  );
  const claims = new Map<string, ClaimView[]>();
  for (const view of allViews) {
    if (isTokenKey(view.holds[0].key)) continue;
    const sameTag = claims.get(view.tag);
    if (sameTag === undefined) claims.set(view.tag, [view]);
    else sameTag.push(view);
  }
  return [...claims.values()].map((views) => mergeViews(views, majority, tokens));
}

/** Held if a majority says so; else it waits, whatever a minority has granted it. */
function mergeViews(views: readonly ClaimView[], majority: number, tokens: ReadonlyMap<string, TokenRun>): ClaimView {
  const [first] = views as [ClaimView];
  const ageMs = Math.max(...views.map((view) => view.ageMs));
  const { heldMs: _, ...view } = first;
  const held = views.filter(({ answer }) => answer.state === "held");
  const token = tokens.get(first.tag)?.token;
  const ttlsOf = (list: readonly ClaimView[]): number[] =>
    list.map(({ answer }) => (answer.state === "none" ? 0 : answer.ttlMs));
  if (held.length < majority || token === undefined) {
    const rechecks = views.map(({ answer }) => (answer.state === "waiting" ? answer.recheckMs : 1));
    return {
      ...view,
      ageMs,
      answer: { state: "waiting", ttlMs: Math.max(...ttlsOf(views)), recheckMs: Math.min(...rechecks) },
    };
  }
  const heldMs = Math.min(...held.map((view) => view.heldMs ?? view.ageMs));
  const ttlMs = Math.max(...ttlsOf(held));
  return { ...view, ageMs, heldMs, answer: { state: "held", token, tokens: view.tokens, ttlMs } };
}
