/** The events that a viewer may see, with only the keys that the account may see. */

import type { Principal } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import type { DashboardEvent } from "./view-types.ts";

/** @param key only events of this key; undefined: of all keys */
export function toVisibleEvents(
  events: readonly DashboardEvent[],
  principal: Principal,
  key?: string,
): readonly DashboardEvent[] {
  const canSee = visibleKeys(principal);
  const wanted = key === undefined ? events : events.filter(({ keys }) => keys.includes(key));
  if (canSee("")) return wanted;
  return wanted.flatMap((event) => {
    const keys = event.keys.filter(canSee);
    return keys.length === 0 || (key !== undefined && !keys.includes(key)) ? [] : [{ ...event, keys }];
  });
}
