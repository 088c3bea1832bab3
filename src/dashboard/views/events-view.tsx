/** The events, the newest first. */

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { createEventColumns } from "../components/event-columns.tsx";
import { EventsHead } from "../components/events-head.tsx";
import { RowTable } from "../components/row-table.tsx";
import { FullText } from "../components/safe-text.tsx";
import { replaceRoute } from "../data/navigation.ts";
import { useShortcuts } from "../data/shortcuts.ts";
import { useEvents } from "../data/use-events.ts";
import { useNarrow } from "../data/use-media.ts";
import { filterEvents } from "../model/event-filter.ts";

const ROW_PX = [32, 74] as const;

export function EventsView({ search }: { readonly search: string }) {
  const feed = useEvents(null);
  const { ring, start, failure } = feed;
  const shown = useMemo(() => filterEvents(ring.events, search).toReversed(), [ring.events, search]);
  const change = (text: string): void => replaceRoute({ view: "events", search: text });
  useShortcuts({ p: () => feed.setPaused(ring.arrived === null) });
  useSteadyScroll(shown.length === 0 ? null : (shown[0]?.sequence ?? null), (sequence) =>
    shown.findIndex((event) => event.sequence === sequence),
  );
  return (
    <>
      <h1 class="visually-hidden">Events</h1>
      <EventsHead feed={feed} search={search} shown={shown} onSearch={change} />
      {failure?.kind === "forbidden" ? (
        <EmptyState title="The events cannot be shown" tone="refused">
          {failure.message}
        </EmptyState>
      ) : start === null ? (
        <LoadingRows label="Waiting for events" />
      ) : shown.length > 0 ? (
        <RowTable
          label="Events"
          name="events"
          rows={shown}
          idOf={({ sequence }) => String(sequence)}
          columns={createEventColumns(Date.now())}
          rowPx={ROW_PX}
          isDimmed={failure !== null}
        />
      ) : search === "" ? (
        <EmptyState title="No events yet">
          Nothing has happened since the history began. New events appear here.
        </EmptyState>
      ) : (
        <EmptyState title="No event contains this text">
          <FullText text={search} isCode />
          <button type="button" class="button" onClick={() => change("")}>
            Clear the filter
          </button>
        </EmptyState>
      )}
    </>
  );
}

/** Rows that are added above what the viewer reads do not move it. */
function useSteadyScroll(newest: number | null, indexOf: (sequence: number) => number): void {
  const before = useRef<number | null>(null);
  const rowPx = ROW_PX[useNarrow() ? 1 : 0];
  useLayoutEffect(() => {
    const added = before.current === null ? 0 : indexOf(before.current);
    before.current = newest;
    if (added > 0 && scrollY > rowPx * 2) scrollBy(0, added * rowPx);
  });
}
