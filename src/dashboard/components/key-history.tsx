/** The last events of one key, on a time axis and as a list. */

import { useMemo } from "preact/hooks";
import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { useTick } from "../data/clock.ts";
import type { EventsState } from "../data/use-events.ts";
import { formatExact, formatMoment } from "../model/time-format.ts";
import { listSpans, selectLast } from "../model/time-spans.ts";
import { createEventColumns } from "./event-columns.tsx";
import { RowTable } from "./row-table.tsx";
import { Timeline } from "./timeline.tsx";

interface KeyHistoryProps {
  readonly events: EventsState;
  /** The claims of the key, as the list had them. */
  readonly queue: readonly ListedClaim[];
  /** When the list was read, by performance.now(). */
  readonly readAt: number;
}

/** As many as `holdfast show` prints with its flag. */
const LAST_EVENTS = 100;
const LAST_SPANS = 12;
const ROW_PX = [32, 56] as const;

export function KeyHistory({ events: { ring, start, failure }, queue, readAt }: KeyHistoryProps) {
  const elapsedMs = Math.max(0, useTick() - readAt);
  const events = useMemo(() => ring.events.slice(-LAST_EVENTS), [ring.events]);
  const newest = useMemo(() => events.toReversed().filter(({ keys }) => keys.length > 0), [events]);
  if (failure !== null && start === null) {
    return <p class="muted">{`The events are not available: ${failure.message}`}</p>;
  }
  if (start === null) return <p class="muted">Waiting for the events.</p>;
  const now = Date.now();
  // the list is a moment older than the events, and the ages in it are those of that moment
  const aged = queue.map((claim) => ({
    ...claim,
    ageMs: claim.ageMs + elapsedMs,
    heldMs: addAge(claim, elapsedMs),
  }));
  const spans = selectLast(listSpans(events, aged.map(dropUnknown), now), LAST_SPANS);
  const from = spans.length === 0 ? now : Math.min(...spans.map((span) => span.from));
  const to = Math.max(...spans.map((span) => span.to), from + 1_000);
  const source =
    start.origin === "server"
      ? "from the lock server"
      : `of claims through this gateway, others are sampled every ${formatExact(start.intervalMs)}`;
  return (
    <>
      <p class="caption">{`Since ${formatMoment(start.since, now)}; ${source}.`}</p>
      {spans.length > 0 && <Timeline spans={spans} from={from} to={to} title="The last claims of this key" />}
      {newest.length === 0 ? (
        <p class="muted">No event of this key is kept.</p>
      ) : (
        <RowTable
          label="Last events"
          name="events"
          rows={newest}
          idOf={({ sequence }) => String(sequence)}
          columns={createEventColumns(now).filter(({ name }) => name !== "key")}
          rowPx={ROW_PX}
          isPassive
        />
      )}
    </>
  );
}

function addAge({ heldMs }: ListedClaim, ms: number): number | undefined {
  return heldMs === undefined ? undefined : heldMs + ms;
}

function dropUnknown({
  heldMs,
  ...claim
}: Omit<ListedClaim, "heldMs"> & { readonly heldMs: number | undefined }): ListedClaim {
  return heldMs === undefined ? claim : { ...claim, heldMs };
}
