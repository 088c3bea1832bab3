/** A doubly linked list whose links are fields of its items: O(1) at both ends and for a removal from the middle. */

/** The links of an item. An item is in at most one list, at most once. */
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

  /** Inserts the item after `anchor`; null: at the front. */
  insertAfter(anchor: T | null, item: T): void {
    const follower = anchor === null ? this.first : anchor.next;
    item.previous = anchor;
    item.next = follower;
    if (anchor === null) this.first = item;
    else anchor.next = item;
    if (follower === null) this.last = item;
    else follower.previous = item;
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
