/** Lists of another store, as far as who asks may see them. */

import type { ClaimView, Hold } from "../spi/driver.ts";
import type { Principal } from "./access.ts";
import type { Page } from "./backend.ts";
import { cutPage } from "./backend.ts";

/** Claims asked for at a time where most may not be seen. */
const LOOKS = 1_000;

/** A page of what the store lists. ask: so many claims, those behind a tag. */
export async function visiblePage(
  ask: (count: number, after?: string) => Promise<readonly ClaimView[]>,
  principal: Principal,
  max: number,
  after: string | undefined,
): Promise<Page> {
  const may = (key: string): boolean => principal.may("inspect", key);
  if (may("")) return cutPage(await ask(max + 1, after), max);
  const seen: ClaimView[] = [];
  for (let cursor = after; seen.length <= max; ) {
    const views = await ask(LOOKS, cursor);
    seen.push(...views.flatMap((view) => visibleOf(view, may)));
    cursor = views.at(-1)?.tag;
    if (views.length < LOOKS || cursor === undefined) break;
  }
  return cutPage(seen, max);
}

/** A claim with those of its keys that may be seen; nothing, if none may. */
function visibleOf(view: ClaimView, may: (key: string) => boolean): ClaimView[] {
  const [first, ...others] = view.holds.filter(({ key }) => may(key));
  const holds: readonly [Hold, ...Hold[]] | null = first === undefined ? null : [first, ...others];
  return holds === null ? [] : [{ ...view, holds }];
}
