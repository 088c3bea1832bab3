/** Pages of a list of claims: what an account may see of them, and no more text than a page may have. */

import type { ClaimView, ListQuery, Page } from "../spi/driver.ts";
import { toPage } from "../util/chunk.ts";
import type { Principal } from "./access-control.ts";
import { visibleKeys } from "./authorize.ts";

/** Claims requested at a time while most of them are not visible. */
const LIST_BATCH = 1_000;
/** A page ends when it contains about this many characters. */
const MAX_PAGE_CHARS = 1_000_000;

/** A page of at most `max` views, shorter if the text would become too long. */
export function truncatePage(views: readonly ClaimView[], max: number): Page<ClaimView> {
  let chars = 0;
  let count = 0;
  for (const view of views) {
    chars += view.label.length + 100;
    for (const { key } of view.locks) chars += key.length + 20;
    if (count === max || (count > 0 && chars > MAX_PAGE_CHARS)) return toPage(views, count);
    count++;
  }
  return { items: views };
}

/** A page of those claims of the store that match the query by a key that the principal may see. */
export async function listVisible(
  fetchPage: (count: number, after: string | undefined) => Promise<Page<ClaimView>>,
  principal: Principal,
  query: ListQuery,
  max: number,
  firstCursor: string | undefined,
): Promise<Page<ClaimView>> {
  const canInspect = visibleKeys(principal);
  if (canInspect("")) {
    const page = await fetchPage(max, firstCursor);
    const shorterPage = truncatePage(page.items, max);
    return shorterPage.next === undefined ? page : shorterPage;
  }
  const visible: ClaimView[] = [];
  let cursor = firstCursor;
  do {
    const { items, next } = await fetchPage(LIST_BATCH, cursor);
    visible.push(...selectVisible(items, query, canInspect));
    cursor = next;
  } while (cursor !== undefined && visible.length <= max);
  return truncatePage(visible, max);
}

/**
 * The claims with only their visible keys. One that matches the query by a hidden key alone is left out: else the query
 * would tell whether that key exists.
 */
export function selectVisible(
  views: readonly ClaimView[],
  query: ListQuery,
  canInspect: (key: string) => boolean,
): ClaimView[] {
  return views.flatMap((view) => {
    const [firstVisible, ...otherVisible] = view.locks.filter(({ key }) => canInspect(key));
    if (firstVisible === undefined) return [];
    const locks: ClaimView["locks"] = [firstVisible, ...otherVisible];
    return locks.some(({ key }) => matchesQuery(key, query)) ? [{ ...view, locks }] : [];
  });
}

/** Does a claim on this key belong into the list? */
function matchesQuery(key: string, query: ListQuery): boolean {
  return query.key === undefined ? key.startsWith(query.prefix) : key === query.key;
}
