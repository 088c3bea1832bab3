/** Lists of another store, as far as who asks may see them. */

import type { ClaimView, LockSpec } from "../../spi/driver.ts";
import type { Principal } from "../auth/access-control.ts";
import type { ClaimPage } from "../backend.ts";
import { truncatePage } from "../backend.ts";

/** Claims asked for at a time where most may not be seen. */
const LIST_BATCH = 1_000;

/** A page of what the store lists. ask: so many claims, those behind a tag. */
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

/** A claim with those of its keys that may be seen; nothing, if none may. */
function redactView(view: ClaimView, canInspect: (key: string) => boolean): ClaimView[] {
  const [firstVisible, ...otherVisible] = view.holds.filter(({ key }) => canInspect(key));
  const holds: readonly [LockSpec, ...LockSpec[]] | null =
    firstVisible === undefined ? null : [firstVisible, ...otherVisible];
  return holds === null ? [] : [{ ...view, holds }];
}
