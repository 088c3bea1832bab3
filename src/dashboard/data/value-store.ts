/** A value that components follow. */

import { useEffect, useState } from "preact/hooks";

/** One value, and the listeners that it calls when it changes. */
export class ValueStore<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Returns what ends it. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** The value now; the component is drawn again when it changes. */
export function useStored<T>(store: ValueStore<T>): T {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    const follow = (): void => setValue(() => store.value);
    follow();
    return store.subscribe(follow);
  }, [store]);
  return value;
}
