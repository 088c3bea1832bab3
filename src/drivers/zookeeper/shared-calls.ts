/** Calls that concern one key each, and that many callers can share. */

interface KeyCalls<T> {
  readonly inFlight: Promise<T>;
  /** Begins when the one in flight has ended; null: no caller waits for it. */
  next: Promise<T> | null;
}

/**
 * Invariant: the result of a call is that of a request that was sent after it. So a caller does not get the result of
 * the request in flight: it shares the next one with all who come meanwhile.
 */
export class SharedCalls<T> {
  readonly #byKey = new Map<string, KeyCalls<T>>();

  /** @param send is called at once if nothing is in flight for the key */
  call(key: string, send: () => Promise<T>): Promise<T> {
    const calls = this.#byKey.get(key);
    if (calls === undefined) return this.#send(key, send);
    calls.next ??= calls.inFlight.catch(() => undefined).then(() => this.#send(key, send));
    return calls.next;
  }

  #send(key: string, send: () => Promise<T>): Promise<T> {
    const calls: KeyCalls<T> = { inFlight: send(), next: null };
    this.#byKey.set(key, calls);
    const forget = (): void => {
      if (calls.next === null) this.#byKey.delete(key);
    };
    calls.inFlight.then(forget, forget);
    return calls.inFlight;
  }
}
