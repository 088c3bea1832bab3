import type { HeapItem } from "../util/deadline-heap.ts";

/** Something of this client that has a due time in its one schedule. */
export interface ScheduledTask extends HeapItem {
  /** May it be called some milliseconds early, to share a batch with others? */
  readonly mayRunEarly: boolean;
  /** Its time has come, or comes within so many milliseconds. */
  onDue(now: number, withinMs: number): void;
}

/** What is only to be called when its time has come. */
export function createTask(onDue: () => void): ScheduledTask {
  return { mayRunEarly: false, dueAt: 0, heapIndex: -1, onDue };
}
