/** The banners of the views that show claims. */

import type { Overview } from "../../gateway/dashboard/view-types.ts";
import { useTick } from "../data/clock.ts";
import type { ClaimsState } from "../data/use-claims.ts";
import { describePause, judgeFreshness } from "../model/freshness.ts";
import { formatAge } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";
import { Banner } from "./banner.tsx";

interface ClaimsBannersProps {
  readonly claims: ClaimsState;
  readonly overview: Overview | null;
}

export function ClaimsBanners({ claims, overview }: ClaimsBannersProps) {
  const now = useTick();
  const { reading, pausedUntil } = claims;
  const { state, ageMs, reason } = judgeFreshness(claims, now);
  const age = reading === null ? "Nothing read yet" : `${formatAge(ageMs)} old`;
  return (
    <div class="banners" aria-live="polite">
      {state === "stale" && (
        <Banner tone="warn" title={`${age}.`}>
          {reason === null ? "The store has not answered for a while." : makeVisible(reason)}
        </Banner>
      )}
      {state === "disconnected" && (
        <Banner tone="bad" title={`Disconnected, ${age.toLowerCase()}:`}>
          {makeVisible(reason ?? "")}
        </Banner>
      )}
      {reading?.paused != null && pausedUntil !== null && (
        <Banner tone="warn" title="Paused.">
          {describePause(reading.paused, pausedUntil)}
        </Banner>
      )}
      {overview !== null && !overview.seesAllKeys && (
        <Banner tone="info">
          {overview.account === "" ? "This session" : `The account ${makeVisible(overview.account)}`} may see only some
          of the keys. Others are not shown, and not counted.
        </Banner>
      )}
    </div>
  );
}
