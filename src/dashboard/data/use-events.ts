/** The stream of events, while a view is open that shows them. */

import { useEffect, useState } from "preact/hooks";
import type { DashboardEvent, EventsStart } from "../../gateway/dashboard/view-types.ts";
import type { EventRing } from "../model/event-ring.ts";
import { EMPTY_RING, pauseRing, pushEvents, resumeRing } from "../model/event-ring.ts";
import { probe, RequestError, UNREACHABLE } from "./api.ts";

const RETRY_MS = 3_000;

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

/** Follows the stream while the page is visible, and begins again if it breaks. */
function followEvents(key: string | null, update: Update): () => void {
  const url = `/ui/api/events${key === null ? "" : `?${new URLSearchParams({ key })}`}`;
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;

  const close = (): void => {
    source?.close();
    if (timer !== null) clearTimeout(timer);
    source = null;
    timer = null;
  };
  const open = (): void => {
    close();
    if (document.hidden) return;
    const stream = new EventSource(url);
    source = stream;
    stream.addEventListener("start", (message) => update((before) => begin(before, parse<EventsStart>(message))));
    stream.addEventListener("events", (message) => {
      const events = parse<readonly DashboardEvent[]>(message);
      update((before) => ({ ...before, failure: null, ring: pushEvents(before.ring, selectKey(events, key)) }));
    });
    stream.addEventListener("error", () => {
      void explain(url, update);
      // it tries again by itself, but not after a refusal
      if (stream.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
    });
  };
  document.addEventListener("visibilitychange", open);
  open();
  return () => {
    document.removeEventListener("visibilitychange", open);
    close();
  };
}

function parse<T>(message: MessageEvent<string>): T {
  return JSON.parse(message.data) as T;
}

function selectKey(events: readonly DashboardEvent[], key: string | null): readonly DashboardEvent[] {
  return key === null ? events : events.filter(({ keys }) => keys.includes(key));
}

/** A gateway that has started again counts its events from the beginning. */
function begin(before: EventsState, start: EventsStart): EventsState {
  const isSameRun = before.start === null || before.start.since === start.since;
  return { ring: isSameRun ? before.ring : EMPTY_RING, start, failure: null };
}

/** A stream does not say why it broke: another request does, of which only the head is read. */
async function explain(url: string, update: Update): Promise<void> {
  try {
    await probe(url);
    update((before) => ({ ...before, failure: new RequestError("unreachable", 0, UNREACHABLE) }));
  } catch (error) {
    if (error instanceof RequestError) update((before) => ({ ...before, failure: error }));
  }
}
