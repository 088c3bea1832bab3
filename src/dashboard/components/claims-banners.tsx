/** The banners of the views that show claims. */

import type { Overview } from "../../gateway/dashboard/view-types.ts";
import { useTick } from "../data/clock.ts";
import type { ClaimsState } from "../data/use-claims.ts";
import type { Freshness } from "../model/freshness.ts";
import { describePause, judgeFreshness } from "../model/freshness.ts";
import { formatAge } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";
import { Announcement, Banner } from "./banner.tsx";

interface ClaimsBannersProps {
  readonly claims: ClaimsState;
  readonly overview: Overview | null;
}

const ANNOUNCEMENTS: Readonly<Record<Freshness["state"], string>> = {
  loading: "",
  live: "",
  stale: "The rows are old: the store has not answered.",
  disconnected: "Disconnected from the gateway.",
};

export function ClaimsBanners({ claims, overview }: ClaimsBannersProps) {
  const now = useTick();
  const { reading, pausedUntil } = claims;
  const { state, ageMs, reason } = judgeFreshness(claims, now);
  const age = reading === null ? "Nothing read yet" : `${formatAge(ageMs)} old`;
  return (
    <div class="banners">
      {state === "loading" && reason !== null && (
        <Banner tone="info" title="Nothing read yet:">
          {makeVisible(reason)}
        </Banner>
      )}
      <Announcement text={ANNOUNCEMENTS[state]} />
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
