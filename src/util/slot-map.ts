/**
 * A Map for what comes and goes all the time, such as claims; its calls mean what a Map's mean.
 *
 * When V8 compacts a Map it links the old table, with all that stood in it, to the new one. As soon as one such table has
 * grown old, every later one and all that it held survives until the next full collection: a busy client spent half of
 * its time copying claims long released. So the Map in here maps to numbers only: the places of the values in an array.
 * And from time to time it is replaced by a new one, for the old tables and the keys in them were more than half of what a
 * busy server promoted.
 */

/** Places kept for the next values when the map is empty. */
const MAX_FREE_SLOTS = 1_000;

export class SlotMap<K, V> {
  #slots = new Map<K, number>();
  readonly #values: (V | undefined)[] = [];
  readonly #free: number[] = [];
  /** Deleted since #places is a new one. */
  #deletions = 0;

  get size(): number {
    return this.#slots.size;
  }

  has(key: K): boolean {
    return this.#slots.has(key);
  }

  get(key: K): V | undefined {
    const slot = this.#slots.get(key);
    return slot === undefined ? undefined : this.#values[slot];
  }

  set(key: K, value: V): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) this.add(key, value);
    else this.#values[slot] = value;
  }

  /** As set(), of a key that is known not to be in it: the key is looked up once. */
  add(key: K, value: V): void {
    const slot = this.#free.pop() ?? this.#values.length;
    this.#slots.set(key, slot);
    this.#values[slot] = value;
  }

  delete(key: K): boolean {
    const slot = this.#slots.get(key);
    if (slot === undefined) return false;
    this.#slots.delete(key);
    this.#values[slot] = undefined;
    this.#free.push(slot);
    const { size } = this.#slots;
    if (size === 0 && this.#values.length > MAX_FREE_SLOTS) this.clear();
    // to copy four times as rarely as to delete costs next to nothing
    if (++this.#deletions > MAX_FREE_SLOTS + 4 * size) {
      this.#deletions = 0;
      this.#slots = new Map(this.#slots);
    }
    return true;
  }

  clear(): void {
    this.#slots.clear();
    this.#values.length = 0;
    this.#free.length = 0;
  }

  /** The keys in the order in which they were set first; to be read before anything is deleted. */
  keys(): IterableIterator<K> {
    return this.#slots.keys();
  }

  /**
   * The values in no order, for a walk during which it may change: what stays is met once, what comes or goes meanwhile may
   * be missed. Nothing is copied.
   */
  *walk(): Generator<V, void, void> {
    for (let slot = 0; slot < this.#values.length; slot++) {
      const value = this.#values[slot];
      if (value !== undefined) yield value;
    }
  }

  /** The values in the order of keys(); a copy. */
  values(): V[] {
    return Array.from(this.#slots.values(), (slot) => this.#values[slot] as V);
  }
}
