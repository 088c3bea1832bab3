/** The last events, the oldest first, and what arrives while the view is paused. */

import type { DashboardEvent } from "../../gateway/dashboard/view-types.ts";

/** As many as the gateway keeps. */
export const MAX_EVENTS = 10_000;

/** The events of one run of a gateway. It is never changed. */
export interface EventRing {
  /** Shown, the oldest first. */
  readonly events: readonly DashboardEvent[];
  /** What arrived during the pause; null: not paused. */
  readonly arrived: readonly DashboardEvent[] | null;
  /** How many of `arrived` are kept no more, since there were too many. */
  readonly droppedCount: number;
}

export const EMPTY_RING: EventRing = { events: [], arrived: null, droppedCount: 0 };

/** The ring with these events. Those that it has already are left out: a stream that begins again repeats them. */
export function pushEvents(ring: EventRing, added: readonly DashboardEvent[], max = MAX_EVENTS): EventRing {
  const { events, arrived, droppedCount } = ring;
  const last = (arrived ?? []).at(-1) ?? events.at(-1);
  const fresh = last === undefined ? added : added.filter(({ sequence }) => sequence > last.sequence);
  if (fresh.length === 0) return ring;
  if (arrived === null) return { ...ring, events: [...events, ...fresh].slice(-max) };
  const all = [...arrived, ...fresh];
  return { ...ring, arrived: all.slice(-max), droppedCount: droppedCount + Math.max(0, all.length - max) };
}

/**
 * The ring for a stream that begins. One that continues the run of the gateway keeps it, and its pause; the events of another
 * run have sequences of their own. @param before the run of the events so far; null: there was none
 */
export function enterRun(ring: EventRing, before: string | null, run: string): EventRing {
  return before === null || before === run ? ring : EMPTY_RING;
}

/** From now on what arrives is counted and not shown. */
export function pauseRing(ring: EventRing): EventRing {
  return ring.arrived === null ? { ...ring, arrived: [], droppedCount: 0 } : ring;
}

/** Shows what has arrived. */
export function resumeRing(ring: EventRing, max = MAX_EVENTS): EventRing {
  const { events, arrived } = ring;
  return arrived === null ? ring : { events: [...events, ...arrived].slice(-max), arrived: null, droppedCount: 0 };
}

/** How many events arrived during the pause. */
export function countArrived({ arrived, droppedCount }: EventRing): number {
  return (arrived?.length ?? 0) + droppedCount;
}
