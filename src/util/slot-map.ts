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

export class SlotMap<K, V extends NonNullable<unknown>> {
  /** The entry that was added when there was no other one, so it is the first: a map that has one entry at most needs no hash. */
  #firstKey: K | undefined;
  #firstValue: V | undefined;
  #slots = new Map<K, number>();
  readonly #values: (V | undefined)[] = [];
  readonly #free: number[] = [];
  /** The number of deletions since #slots was replaced. */
  #deletions = 0;

  get size(): number {
    return this.#firstValue === undefined ? this.#slots.size : this.#slots.size + 1;
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  get(key: K): V | undefined {
    if (key === this.#firstKey) return this.#firstValue;
    if (this.#slots.size === 0) return undefined;
    const slot = this.#slots.get(key);
    return slot === undefined ? undefined : this.#values[slot];
  }

  set(key: K, value: V): void {
    const slot = this.#slots.get(key);
    if (slot !== undefined) this.#values[slot] = value;
    else if (key === this.#firstKey) this.#firstValue = value;
    else this.add(key, value);
  }

  /** Like set(), for a key that is not in the map: saves a lookup. */
  add(key: K, value: V): void {
    if (this.size === 0) {
      this.#firstKey = key;
      this.#firstValue = value;
      return;
    }
    const slot = this.#free.pop() ?? this.#values.length;
    this.#slots.set(key, slot);
    this.#values[slot] = value;
  }

  delete(key: K): boolean {
    if (key === this.#firstKey) {
      this.#firstKey = undefined;
      this.#firstValue = undefined;
      return true;
    }
    const slot = this.#slots.get(key);
    if (slot === undefined) return false;
    this.#slots.delete(key);
    this.#values[slot] = undefined;
    this.#free.push(slot);
    const { size } = this.#slots;
    if (size === 0 && this.#values.length > MAX_FREE_SLOTS) this.#clearSlots();
    // copying only after four times as many deletions as entries costs almost nothing
    if (++this.#deletions > MAX_FREE_SLOTS + 4 * size) {
      this.#deletions = 0;
      this.#slots = new Map(this.#slots);
    }
    return true;
  }

  clear(): void {
    this.#firstKey = undefined;
    this.#firstValue = undefined;
    this.#clearSlots();
  }

  /** The keys in insertion order. Read them before the next deletion. */
  *keys(): Generator<K, void, void> {
    if (this.#firstValue !== undefined) yield this.#firstKey as K;
    yield* this.#slots.keys();
  }

  /**
   * Iterates over the values in no particular order, without a copy. The map may change meanwhile: values that stay are
   * visited once, values that are added or deleted may be missed.
   */
  *walk(): Generator<V, void, void> {
    if (this.#firstValue !== undefined) yield this.#firstValue;
    for (let slot = 0; slot < this.#values.length; slot++) {
      const value = this.#values[slot];
      if (value !== undefined) yield value;
    }
  }

  /** Returns a copy of the values, in the order of keys(). */
  values(): V[] {
    const values = Array.from(this.#slots.values(), (slot) => this.#values[slot] as V);
    if (this.#firstValue !== undefined) values.unshift(this.#firstValue);
    return values;
  }

  #clearSlots(): void {
    this.#slots.clear();
    this.#values.length = 0;
    this.#free.length = 0;
  }
}
