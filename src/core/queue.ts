/** A doubly linked list whose links live in its items: O(1) at both ends and for leaving from the middle. */

/** What an item must carry to stand in a linked list: at most one list, at most once. */
export interface Linked<T> {
  previous: T | null;
  next: T | null;
}

export class LinkedList<T extends Linked<T>> {
  first: T | null = null;
  last: T | null = null;
  size = 0;

  push(item: T): void {
    this.insertAfter(this.last, item);
  }

  /** Puts item behind `before`; null: at the front. */
  insertAfter(before: T | null, item: T): void {
    const after = before === null ? this.first : before.next;
    item.previous = before;
    item.next = after;
    if (before === null) this.first = item;
    else before.next = item;
    if (after === null) this.last = item;
    else after.previous = item;
    this.size++;
  }

  remove(item: T): void {
    if (item.previous === null) this.first = item.next;
    else item.previous.next = item.next;
    if (item.next === null) this.last = item.previous;
    else item.next.previous = item.previous;
    item.previous = null;
    item.next = null;
    this.size--;
  }

  *[Symbol.iterator](): Generator<T, void, undefined> {
    for (let item = this.first; item !== null; item = item.next) yield item;
  }
}
