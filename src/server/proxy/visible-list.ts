/** Lists the claims of another store that the caller may see. */

import type { ClaimView, LockSpec } from "../../spi/driver.ts";
import type { Principal } from "../auth/access-control.ts";
import type { ClaimPage } from "../backend.ts";
import { truncatePage } from "../backend.ts";

/** Claims requested at a time while most of them are not visible. */
const LIST_BATCH = 1_000;

/** A page of the store's claims. list: requests up to `max` claims after a tag. */
export async function listVisible(
  fetchPage: (count: number, after?: string) => Promise<readonly ClaimView[]>,
  principal: Principal,
  max: number,
  firstCursor: string | undefined,
): Promise<ClaimPage> {
  const canInspect = (key: string): boolean => principal.can("inspect", key);
  if (canInspect("")) return truncatePage(await fetchPage(max + 1, firstCursor), max);
  const visible: ClaimView[] = [];
  for (let cursor = firstCursor; visible.length <= max; ) {
    const views = await fetchPage(LIST_BATCH, cursor);
    visible.push(...views.flatMap((view) => redactView(view, canInspect)));
    cursor = views.at(-1)?.tag;
    if (views.length < LIST_BATCH || cursor === undefined) break;
  }
  return truncatePage(visible, max);
}

/** The claim with only its visible keys; nothing if there are none. */
function redactView(view: ClaimView, canInspect: (key: string) => boolean): ClaimView[] {
  const [firstVisible, ...otherVisible] = view.holds.filter(({ key }) => canInspect(key));
  const holds: readonly [LockSpec, ...LockSpec[]] | null =
    firstVisible === undefined ? null : [firstVisible, ...otherVisible];
  return holds === null ? [] : [{ ...view, holds }];
}
