/** Lists for tools: each claim that a member lists, once, with the state that a majority reports. */

import type { ClaimView, Driver, ListOptions, ListQuery, Page, TokenRange } from "../../spi/driver.ts";
import { toPage } from "../../util/chunk.ts";
import { AnswerCount } from "./answer-count.ts";
import type { Member } from "./member.ts";
import { listAll, waitForMembers } from "./member.ts";
import { toMajority } from "./quorum-claim.ts";
import { findTokensByTag, HASHED_TOKEN_KEY_PREFIX, hasHashedTokenKey, isTokenKey, toTokenKey } from "./tokens.ts";

/**
 * Members may have a queue in different orders, and some may lack a claim: they share no cursor. Each member's list is
 * read completely, and pages are cut from the merged list, ordered by key and tag. A list that fits into one page has
 * the holders of a key first, then the waiters by age.
 * @throws (rejects) Error if fewer than a majority of members have answered
 */
export async function listClaims(
  members: readonly Member[],
  query: ListQuery,
  { max, after, signal }: ListOptions,
  timeoutMs: number,
): Promise<Page<ClaimView>> {
  const count = new AnswerCount(members.length);
  const lists = new Map<number, readonly ClaimView[]>();
  const calls = members.map((member) => ({
    member,
    settled: member
      .call((driver) => listMember(driver, query, signal))
      .then(
        (views) => {
          lists.set(member.index, views);
          count.addAnswered();
        },
        (error: unknown) => count.addError(error),
      ),
  }));
  await waitForMembers(calls, () => false, timeoutMs);
  if (!count.hasMajorityAnswered) throw count.failure;
  const mergedViews = mergeLists([...lists.values()], toMajority(members.length));
  if (after === undefined && mergedViews.length <= max) return { items: mergedViews.sort(compareByStatus) };
  mergedViews.sort(compareByTag);
  // if the cursor's claim is gone, the list starts again
  const start = mergedViews.findIndex(({ tag }) => tag === after) + 1;
  return toPage(mergedViews.slice(start), max);
}

/** The claims and their token claims. */
async function listMember(
  driver: Driver,
  query: ListQuery,
  signal: AbortSignal | undefined,
): Promise<readonly ClaimView[]> {
  const listBy = (part: ListQuery): Promise<readonly ClaimView[]> => listAll(driver, part, signal);
  if (query.key !== undefined) {
    return (await Promise.all([listBy(query), listBy({ key: toTokenKey(query.key) })])).flat();
  }
  const views = await listBy(query);
  const hasHashedKeys =
    !HASHED_TOKEN_KEY_PREFIX.startsWith(query.prefix) && views.some(({ locks: [{ key }] }) => hasHashedTokenKey(key));
  return hasHashedKeys ? [...views, ...(await listBy({ prefix: HASHED_TOKEN_KEY_PREFIX }))] : views;
}

function compareByStatus(left: ClaimView, right: ClaimView): number {
  const rank = ({ answer }: ClaimView): number => (answer.state === "held" ? 0 : 1);
  return compareByKey(left, right) || rank(left) - rank(right) || right.ageMs - left.ageMs;
}

function compareByTag(left: ClaimView, right: ClaimView): number {
  return compareByKey(left, right) || (left.tag < right.tag ? -1 : 1);
}

function compareByKey(left: ClaimView, right: ClaimView): number {
  const [leftKey, rightKey] = [left.locks[0].key, right.locks[0].key];
  if (leftKey === rightKey) return 0;
  return leftKey < rightKey ? -1 : 1;
}

function mergeLists(lists: readonly (readonly ClaimView[])[], majority: number): ClaimView[] {
  const allViews = lists.flat();
  const tokens = findTokensByTag(
    allViews.filter((view) => isTokenKey(view.locks[0].key)),
    majority,
  );
  const claims = new Map<string, ClaimView[]>();
  for (const view of allViews) {
    if (isTokenKey(view.locks[0].key)) continue;
    const sameTag = claims.get(view.tag);
    if (sameTag === undefined) claims.set(view.tag, [view]);
    else sameTag.push(view);
  }
  return [...claims.values()].map((views) => mergeViews(views, majority, tokens));
}

/** Held if a majority says so; otherwise waiting, even if a minority has granted it. */
function mergeViews(views: readonly ClaimView[], majority: number, tokens: ReadonlyMap<string, TokenRange>): ClaimView {
  const [first] = views as [ClaimView];
  const ageMs = Math.max(...views.map((view) => view.ageMs));
  const { heldMs: _, ...view } = first;
  const heldViews = views.filter(({ answer }) => answer.state === "held");
  const token = tokens.get(first.tag)?.token;
  const toTtls = (list: readonly ClaimView[]): number[] =>
    list.map(({ answer }) => (answer.state === "none" ? 0 : answer.remainingMs));
  if (heldViews.length < majority || token === undefined) {
    const recheckTimes = views.map(({ answer }) => (answer.state === "waiting" ? answer.recheckMs : 1));
    return {
      ...view,
      ageMs,
      answer: { state: "waiting", remainingMs: Math.max(...toTtls(views)), recheckMs: Math.min(...recheckTimes) },
    };
  }
  const heldMs = Math.min(...heldViews.map((view) => view.heldMs ?? view.ageMs));
  const remainingMs = Math.max(...toTtls(heldViews));
  return { ...view, ageMs, heldMs, answer: { state: "held", token, tokenCount: view.tokenCount, remainingMs } };
}
