/** The events that a viewer may see, with only the keys that the account may see. */

import type { Principal } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import type { DashboardEvent } from "./view-types.ts";

export function toVisibleEvents(events: readonly DashboardEvent[], principal: Principal): readonly DashboardEvent[] {
  const canSee = visibleKeys(principal);
  if (canSee("")) return events;
  return events.flatMap((event) => {
    const keys = event.keys.filter(canSee);
    return keys.length === 0 ? [] : [{ ...event, keys }];
  });
}
