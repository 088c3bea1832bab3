/** The stream of events, while a view is open that shows them. */

import { useEffect, useState } from "preact/hooks";
import type { DashboardEvent, EventsStart } from "../../gateway/dashboard/view-types.ts";
import type { EventRing } from "../model/event-ring.ts";
import { EMPTY_RING, enterRun, pauseRing, pushEvents, resumeRing } from "../model/event-ring.ts";
import type { StreamMessage } from "../model/event-stream-parser.ts";
import type { RequestError } from "./api.ts";
import type { StreamPlace } from "./event-stream.ts";
import { followStream } from "./event-stream.ts";

/** What is known of the events. */
export interface EventsState {
  readonly ring: EventRing;
  /** null: the stream has not begun yet. */
  readonly start: EventsStart | null;
  /** Why there is no stream now. */
  readonly failure: RequestError | null;
}

/** The events, and what pauses them. */
export interface EventsFeed extends EventsState {
  readonly setPaused: (isPaused: boolean) => void;
}

/** @param key only the events of this key; null: of all keys */
export function useEvents(key: string | null): EventsFeed {
  const [state, setState] = useState<EventsState>({ ring: EMPTY_RING, start: null, failure: null });
  useEffect(() => followEvents(key, setState), [key]);
  const setPaused = (isPaused: boolean): void =>
    setState((before) => ({ ...before, ring: isPaused ? pauseRing(before.ring) : resumeRing(before.ring) }));
  return { ...state, setPaused };
}

type Update = (change: (before: EventsState) => EventsState) => void;

/** Follows the stream while the page is visible. */
function followEvents(key: string | null, update: Update): () => void {
  const path = `/events${key === null ? "" : `?${new URLSearchParams({ key })}`}`;
  const place: StreamPlace = { lastId: "" };
  let running: AbortController | null = null;

  const adapt = (): void => {
    running?.abort();
    running = null;
    if (document.hidden) return;
    running = new AbortController();
    void followStream(path, place, { onMessage, onFailure }, running.signal);
  };
  let run: string | null = null;
  const onMessage = ({ event, data }: StreamMessage): void => {
    if (event === "start") {
      const start = JSON.parse(data) as EventsStart;
      const isContinued = place.lastId !== "";
      const isOtherRun = run !== null && run !== start.run;
      run = start.run;
      update((before) => ({ ring: enterRun(before.ring, before.start?.run ?? null, start.run), start, failure: null }));
      if (!isOtherRun || !isContinued) return;
      // the id was of another run: this one may have events before it
      place.lastId = "";
      adapt();
    } else if (event === "events") {
      const events = JSON.parse(data) as readonly DashboardEvent[];
      update((before) => ({ ...before, failure: null, ring: pushEvents(before.ring, selectKey(events, key)) }));
    }
  };
  const onFailure = (failure: RequestError): void => {
    if (failure.kind !== "signedOut") update((before) => ({ ...before, failure }));
  };
  document.addEventListener("visibilitychange", adapt);
  adapt();
  return () => {
    document.removeEventListener("visibilitychange", adapt);
    running?.abort();
  };
}

function selectKey(events: readonly DashboardEvent[], key: string | null): readonly DashboardEvent[] {
  return key === null ? events : events.filter(({ keys }) => keys.includes(key));
}
