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
const MOST_KEPT = 1_000;

export class SlotMap<K, V> {
  #places = new Map<K, number>();
  readonly #values: (V | undefined)[] = [];
  readonly #free: number[] = [];
  /** Deleted since #places is a new one. */
  #gone = 0;

  get size(): number {
    return this.#places.size;
  }

  has(key: K): boolean {
    return this.#places.has(key);
  }

  get(key: K): V | undefined {
    const place = this.#places.get(key);
    return place === undefined ? undefined : this.#values[place];
  }

  set(key: K, value: V): void {
    const place = this.#places.get(key);
    if (place === undefined) this.add(key, value);
    else this.#values[place] = value;
  }

  /** As set(), of a key that is known not to be in it: the key is looked up once. */
  add(key: K, value: V): void {
    const place = this.#free.pop() ?? this.#values.length;
    this.#places.set(key, place);
    this.#values[place] = value;
  }

  delete(key: K): boolean {
    const place = this.#places.get(key);
    if (place === undefined) return false;
    this.#places.delete(key);
    this.#values[place] = undefined;
    this.#free.push(place);
    const { size } = this.#places;
    if (size === 0 && this.#values.length > MOST_KEPT) this.clear();
    // to copy four times as rarely as to delete costs next to nothing
    if (++this.#gone > MOST_KEPT + 4 * size) {
      this.#gone = 0;
      this.#places = new Map(this.#places);
    }
    return true;
  }

  clear(): void {
    this.#places.clear();
    this.#values.length = 0;
    this.#free.length = 0;
  }

  /** The keys in the order in which they were set first; to be read before anything is deleted. */
  keys(): IterableIterator<K> {
    return this.#places.keys();
  }

  /**
   * The values in no order, for a walk during which it may change: what stays is met once, what comes or goes meanwhile may
   * be missed. Nothing is copied.
   */
  *walk(): Generator<V, void, void> {
    for (let place = 0; place < this.#values.length; place++) {
      const value = this.#values[place];
      if (value !== undefined) yield value;
    }
  }

  /** The values in the order of keys(); a copy. */
  values(): V[] {
    return Array.from(this.#places.values(), (place) => this.#values[place] as V);
  }
}
