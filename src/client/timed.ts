import type { Scheduled } from "../core/schedule.ts";

/** Something of this client that has a due time in its one schedule. */
export interface Timed extends Scheduled {
  /** May it be called some milliseconds early, to share a batch with others? */
  readonly rides: boolean;
  /** Its time has come, or comes within so many milliseconds. */
  due(now: number, withinMs: number): void;
}

/** What is only to be called when its time has come. */
export function timed(due: () => void): Timed {
  return { rides: false, dueAt: 0, heapIndex: -1, due };
}
