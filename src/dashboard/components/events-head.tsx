/** Above the events: filter, pause, download, and what is known of their history. */

import type { DashboardEvent } from "../../gateway/dashboard/view-types.ts";
import type { EventsFeed } from "../data/use-events.ts";
import { formatNdjson } from "../model/event-filter.ts";
import { countArrived, MAX_EVENTS } from "../model/event-ring.ts";
import { formatAmount, formatCount, formatExact, formatMoment } from "../model/time-format.ts";
import { Announcement, Banner } from "./banner.tsx";
import { Icon } from "./icons.tsx";
import { SearchField } from "./search-field.tsx";

interface EventsHeadProps {
  readonly feed: EventsFeed;
  readonly search: string;
  /** What the filter leaves, the newest first. */
  readonly shown: readonly DashboardEvent[];
  readonly onSearch: (text: string) => void;
}

export function EventsHead({ feed, search, shown, onSearch }: EventsHeadProps) {
  const { ring, start, failure } = feed;
  const isPaused = ring.arrived !== null;
  return (
    <>
      <search class="toolbar">
        <SearchField
          label="Filter by key, label or kind"
          placeholder="Filter by key, label, kind:revoked"
          value={search}
          hasShortcut
          onChange={onSearch}
        />
        <button type="button" class="button" onClick={() => feed.setPaused(!isPaused)}>
          <Icon name={isPaused ? "play" : "pause"} />
          {isPaused ? "Continue" : "Pause"}
        </button>
        <button type="button" class="button" disabled={shown.length === 0} onClick={() => download(shown)}>
          <Icon name="download" />
          Download
        </button>
      </search>
      <div class="banners">
        <Announcement text={failure === null ? (isPaused ? "Paused." : "") : "No new events arrive."} />
        {failure !== null && failure.kind !== "forbidden" && (
          <Banner tone="bad" title={failure.kind === "unreachable" ? "Disconnected:" : "No new events:"}>
            {failure.message}
          </Banner>
        )}
        {isPaused && (
          <Banner tone="info" title="Paused.">
            {`${formatAmount(countArrived(ring), "new event")} meanwhile.`}
          </Banner>
        )}
      </div>
      {start !== null && (
        <p class="figures">
          <span>
            {search === "" ? "" : `${formatCount(shown.length)} of `}
            {formatAmount(ring.events.length, "event")}
          </span>
          <span>
            {`since ${formatMoment(start.since, Date.now())}; at most ${formatCount(MAX_EVENTS)} are kept, in the gateway's memory`}
          </span>
          <span>
            {start.origin === "server"
              ? "from the lock server: all events of the store"
              : `of claims through this gateway; others are sampled every ${formatExact(start.intervalMs)}`}
          </span>
        </p>
      )}
    </>
  );
}

const DOWNLOAD_MS = 30_000;
const FILE_NAME = "holdfast-events.ndjson";

/** A file with one JSON object on each line, the oldest event first. */
function download(shown: readonly DashboardEvent[]): void {
  const url = URL.createObjectURL(new Blob([formatNdjson(shown.toReversed())], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = FILE_NAME;
  link.click();
  // some browsers read it a moment later
  setTimeout(() => URL.revokeObjectURL(url), DOWNLOAD_MS);
}
