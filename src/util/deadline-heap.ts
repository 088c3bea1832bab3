/**
 * A binary heap of deadlines, without a timer: its owner reads the next due time and arms one.
 *
 * Items that are set to the same time one after another, such as all claims of one renewal, form a linked row. Only the
 * first item of a row is in the heap, so adding or taking one of the others moves no heap entries.
 *
 * Invariant: the item that was set last is the last of its row.
 */

/** The fields of an item in a heap. An item is in at most one heap, at most once; the heap owns all these fields. */
export interface HeapItem {
  /** When it is due; valid while it is in the heap. */
  dueAt: number;
  /** Its index in the heap; -1: not in the heap; -2: in a row, but not its first item. */
  heapIndex: number;
  /** Its neighbours in its row. Items that are often in a row should define both from the start, to keep their shape. */
  previousSameDue?: HeapItem | undefined;
  nextSameDue?: HeapItem | undefined;
}

export class DeadlineHeap<T extends HeapItem> {
  readonly #heap: T[] = [];
  /** The item that was set last; undefined if it was removed. */
  #lastSet: HeapItem | undefined;

  /** When the first item is due, or null. */
  nextDueAt(): number | null {
    return this.#heap[0]?.dueAt ?? null;
  }

  /** Adds the item, or moves it to another time. */
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

  /** Removes the item if it is in the heap. */
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
    if (nextSameDue !== undefined) return; // due at the same time, so the heap order still holds
    this.#siftUp(successor);
    this.#siftDown(successor);
  }

  /** Removes and returns the first item if it is due at `now`, else null. */
  takeDue(now: number): T | null {
    const first = this.#heap[0];
    if (first === undefined || first.dueAt > now) return null;
    this.remove(first);
    return first;
  }

  /** Removes and returns the items that are due at `until`, at most `max`, earliest first. */
  takeAllDue(until: number, max: number = Number.POSITIVE_INFINITY): T[] {
    const due: T[] = [];
    while (due.length < max) {
      const item = this.takeDue(until);
      if (item === null) break;
      due.push(item);
    }
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
