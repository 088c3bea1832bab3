/**
 * Deadlines in a binary heap. It knows nothing of timers: who owns it asks for the next due time and arms one.
 *
 * Those that are set one after another to the same time, as all that one call has renewed are, stand in a row of which
 * only the first is in the heap: to set and to take one of them moves nothing.
 *
 * Invariant: the item that was set last is the last of its row.
 */

/** What a thing must carry to stand in a schedule: at most one schedule, at most once. All fields belong to the schedule. */
export interface HeapItem {
  /** When it is due; meaningful while it stands in the schedule. */
  dueAt: number;
  /** Its index in the heap; -1: it stands nowhere; -2: in a row, and not as its first. */
  heapIndex: number;
  /** Its neighbours in its row. Things that often stand in one should have both from the beginning. */
  previousSameDue?: HeapItem | undefined;
  nextSameDue?: HeapItem | undefined;
}

export class DeadlineHeap<T extends HeapItem> {
  readonly #heap: T[] = [];
  /** Set last; undefined: that one is gone. */
  #lastSet: HeapItem | undefined;

  /** When the first is due, or null. */
  nextDueAt(): number | null {
    return this.#heap[0]?.dueAt ?? null;
  }

  /** Puts the item in, or moves it. */
  set(item: T, dueAt: number): void {
    this.remove(item);
    const lastSet = this.#lastSet;
    this.#lastSet = item;
    item.dueAt = dueAt;
    if (lastSet?.dueAt === dueAt) {
      item.heapIndex = -2;
      item.previousSameDue = lastSet;
      lastSet.nextSameDue = item;
      return;
    }
    item.heapIndex = this.#heap.length;
    this.#heap.push(item);
    this.#siftUp(item);
  }

  /** Takes the item out; nothing happens if it is not in. */
  remove(item: T): void {
    const { heapIndex: index, previousSameDue, nextSameDue } = item;
    if (index === -1) return;
    item.heapIndex = -1;
    if (this.#lastSet === item) this.#lastSet = previousSameDue;
    if (previousSameDue !== undefined) {
      previousSameDue.nextSameDue = nextSameDue;
      item.previousSameDue = undefined;
    }
    if (nextSameDue !== undefined) {
      nextSameDue.previousSameDue = previousSameDue;
      item.nextSameDue = undefined;
    }
    if (previousSameDue !== undefined) return;
    const successor = (nextSameDue ?? this.#heap.pop()) as T;
    if (successor === item) return;
    this.#heap[index] = successor;
    successor.heapIndex = index;
    if (nextSameDue !== undefined) return; // it is due at the same time
    this.#siftUp(successor);
    this.#siftDown(successor);
  }

  /** Takes out and gives the first item if it is due at `now`, else null. */
  takeDue(now: number): T | null {
    const first = this.#heap[0];
    if (first === undefined || first.dueAt > now) return null;
    this.remove(first);
    return first;
  }

  /** Takes out all that is due at `until`, soonest first. */
  takeAllDue(until: number): T[] {
    const due: T[] = [];
    for (let item = this.takeDue(until); item !== null; item = this.takeDue(until)) due.push(item);
    return due;
  }

  #siftUp(item: T): void {
    const heap = this.#heap;
    let index = item.heapIndex;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = heap[parentIndex] as T;
      if (parent.dueAt <= item.dueAt) break;
      heap[index] = parent;
      parent.heapIndex = index;
      index = parentIndex;
    }
    heap[index] = item;
    item.heapIndex = index;
  }

  #siftDown(item: T): void {
    const heap = this.#heap;
    const size = heap.length;
    let index = item.heapIndex;
    for (;;) {
      let childIndex = 2 * index + 1;
      if (childIndex >= size) break;
      if (childIndex + 1 < size && (heap[childIndex + 1] as T).dueAt < (heap[childIndex] as T).dueAt) childIndex++;
      const child = heap[childIndex] as T;
      if (child.dueAt >= item.dueAt) break;
      heap[index] = child;
      child.heapIndex = index;
      index = childIndex;
    }
    heap[index] = item;
    item.heapIndex = index;
  }
}
