/**
 * Deadlines in a binary heap. It knows nothing of timers: who owns it asks for the next due time and arms one.
 *
 * Those that are set one after another to the same time, as all that one call has renewed are, stand in a row of which
 * only the first is in the heap: to set and to take one of them moves nothing.
 *
 * Invariant: the item that was set last is the last of its row.
 */

/** What a thing must carry to stand in a schedule: at most one schedule, at most once. All fields belong to the schedule. */
export interface Scheduled {
  /** When it is due; meaningful while it stands in the schedule. */
  dueAt: number;
  /** Its index in the heap; -1: it stands nowhere; -2: in a row, and not as its first. */
  heapIndex: number;
  /** Its neighbours in its row. Things that often stand in one should have both from the beginning. */
  before?: Scheduled | undefined;
  behind?: Scheduled | undefined;
}

export class Schedule<T extends Scheduled> {
  readonly #heap: T[] = [];
  /** Set last; undefined: that one is gone. */
  #last: Scheduled | undefined;

  /** When the first is due, or null. */
  next(): number | null {
    return this.#heap[0]?.dueAt ?? null;
  }

  /** Puts the item in, or moves it. */
  set(item: T, at: number): void {
    this.remove(item);
    const last = this.#last;
    this.#last = item;
    item.dueAt = at;
    if (last?.dueAt === at) {
      item.heapIndex = -2;
      item.before = last;
      last.behind = item;
      return;
    }
    item.heapIndex = this.#heap.length;
    this.#heap.push(item);
    this.#rise(item);
  }

  /** Takes the item out; nothing happens if it is not in. */
  remove(item: T): void {
    const { heapIndex: index, before, behind } = item;
    if (index === -1) return;
    item.heapIndex = -1;
    if (this.#last === item) this.#last = before;
    if (before !== undefined) {
      before.behind = behind;
      item.before = undefined;
    }
    if (behind !== undefined) {
      behind.before = before;
      item.behind = undefined;
    }
    if (before !== undefined) return;
    const successor = (behind ?? this.#heap.pop()) as T;
    if (successor === item) return;
    this.#heap[index] = successor;
    successor.heapIndex = index;
    if (behind !== undefined) return; // it is due at the same time
    this.#rise(successor);
    this.#sink(successor);
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
