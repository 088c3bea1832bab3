/** Pages of a list of claims: what an account may see of them, and no more text than a page may have. */

import type { ClaimView, LockSpec, Page } from "../spi/driver.ts";
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

/** A page of those claims that the principal may see, of the store's claims. */
export async function listVisible(
  fetchPage: (count: number, after: string | undefined) => Promise<Page<ClaimView>>,
  principal: Principal,
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
    visible.push(...items.flatMap((view) => redactView(view, canInspect)));
    cursor = next;
  } while (cursor !== undefined && visible.length <= max);
  return truncatePage(visible, max);
}

/** The claim with only its visible keys; nothing if there are none. */
export function redactView(view: ClaimView, canInspect: (key: string) => boolean): ClaimView[] {
  const [firstVisible, ...otherVisible] = view.locks.filter(({ key }) => canInspect(key));
  const locks: readonly [LockSpec, ...LockSpec[]] | null =
    firstVisible === undefined ? null : [firstVisible, ...otherVisible];
  return locks === null ? [] : [{ ...view, locks }];
}
