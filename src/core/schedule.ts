/** Deadlines in a binary heap. It knows nothing of timers: who owns it asks for the next due time and arms one. */

/** What a thing must carry to stand in a schedule: at most one schedule, at most once. Both fields belong to the schedule. */
export interface Scheduled {
  /** When it is due; meaningful while it stands in the schedule. */
  dueAt: number;
  /** Its index in the heap, or -1. */
  heapIndex: number;
}

export class Schedule<T extends Scheduled> {
  readonly #heap: T[] = [];

  get size(): number {
    return this.#heap.length;
  }

  /** When the first is due, or null. */
  next(): number | null {
    return this.#heap[0]?.dueAt ?? null;
  }

  /** Puts the item in, or moves it. */
  set(item: T, at: number): void {
    const known = item.heapIndex;
    if (known === -1) {
      item.dueAt = at;
      item.heapIndex = this.#heap.length;
      this.#heap.push(item);
      this.#rise(item);
      return;
    }
    const before = item.dueAt;
    item.dueAt = at;
    if (at < before) this.#rise(item);
    else if (at > before) this.#sink(item);
  }

  /** Takes the item out; nothing happens if it is not in. */
  remove(item: T): void {
    const index = item.heapIndex;
    if (index === -1) return;
    item.heapIndex = -1;
    const last = this.#heap.pop() as T;
    if (last === item) return;
    this.#heap[index] = last;
    last.heapIndex = index;
    this.#rise(last);
    this.#sink(last);
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

  #rise(item: T): void {
    const heap = this.#heap;
    let index = item.heapIndex;
    while (index > 0) {
      const above = (index - 1) >> 1;
      const parent = heap[above] as T;
      if (parent.dueAt <= item.dueAt) break;
      heap[index] = parent;
      parent.heapIndex = index;
      index = above;
    }
    heap[index] = item;
    item.heapIndex = index;
  }

  #sink(item: T): void {
    const heap = this.#heap;
    const size = heap.length;
    let index = item.heapIndex;
    for (;;) {
      let below = 2 * index + 1;
      if (below >= size) break;
      if (below + 1 < size && (heap[below + 1] as T).dueAt < (heap[below] as T).dueAt) below++;
      const child = heap[below] as T;
      if (child.dueAt >= item.dueAt) break;
      heap[index] = child;
      child.heapIndex = index;
      index = below;
    }
    heap[index] = item;
    item.heapIndex = index;
  }
}
