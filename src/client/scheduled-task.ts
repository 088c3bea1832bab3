import type { HeapItem } from "../util/deadline-heap.ts";

/** A task with a due time in the client's one schedule. */
export interface ScheduledTask extends HeapItem {
  /** May it run early, to share a batch with others? */
  readonly mayRunEarly: boolean;
  /** The task is due now, or within `withinMs`. */
  onDue(now: number, withinMs: number): void;
}

/** Creates a task that never runs early. */
export function createTask(onDue: () => void): ScheduledTask {
  return { mayRunEarly: false, dueAt: 0, heapIndex: -1, onDue };
}
