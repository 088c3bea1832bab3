/**
 * A Map for values that are added and deleted all the time, such as claims; its methods work like those of a Map.
 *
 * When V8 compacts a Map, it links the old table with all its contents to the new one. Once one such table has been promoted
 * to the old generation, every later one and its contents survive until the next full collection: a busy client spent half
 * of its time copying claims that had been released long before. Therefore the Map in this class has only numbers as its
 * values, the slots of an array. It is also replaced from time to time, since the old tables and the keys in them were more
 * than half of what a busy server promoted.
 */

/** An empty map keeps up to this many slots for the next values. */
const MAX_FREE_SLOTS = 1_000;

export class SlotMap<K, V> {
  #slots = new Map<K, number>();
  readonly #values: (V | undefined)[] = [];
  readonly #free: number[] = [];
  /** The number of deletions since #slots was replaced. */
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

  /** Like set(), for a key that is not in the map: saves a lookup. */
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
    // copying only after four times as many deletions as entries costs almost nothing
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

  /** The keys in insertion order. Read them before the next deletion. */
  keys(): IterableIterator<K> {
    return this.#slots.keys();
  }

  /**
   * Iterates over the values in no particular order, without a copy. The map may change meanwhile: values that stay are
   * visited once, values that are added or deleted may be missed.
   */
  *walk(): Generator<V, void, void> {
    for (let slot = 0; slot < this.#values.length; slot++) {
      const value = this.#values[slot];
      if (value !== undefined) yield value;
    }
  }

  /** Returns a copy of the values, in the order of keys(). */
  values(): V[] {
    return Array.from(this.#slots.values(), (slot) => this.#values[slot] as V);
  }
}
