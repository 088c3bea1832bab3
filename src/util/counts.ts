/** Counts by name. A name without a count takes no memory. */

export class Counts {
  readonly #counts = new Map<string, number>();

  add(name: string): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
  }

  /** Undoes one add(). */
  remove(name: string): void {
    const count = this.#counts.get(name) ?? 0;
    if (count > 1) this.#counts.set(name, count - 1);
    else this.#counts.delete(name);
  }

  has(name: string): boolean {
    return this.#counts.has(name);
  }
}
