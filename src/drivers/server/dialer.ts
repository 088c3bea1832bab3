/** One attempt to connect at a time: what an earlier one still tells is not heard. */

import type { Dial, Wire, WireEvents } from "./wire.ts";

export class Dialer {
  readonly #dial: Dial;
  /** Called, and awaited, before each attempt; it may start the server. */
  readonly #prepare: (() => Promise<void>) | undefined;
  #attempt = 0;
  /** The wire of the present attempt; null: it has none yet, or there is none. */
  wire: Wire | null = null;

  constructor(dial: Dial, prepare: (() => Promise<void>) | undefined) {
    this.#dial = dial;
    this.#prepare = prepare;
  }

  /** Is it for us to start the server? */
  get prepares(): boolean {
    return this.#prepare !== undefined;
  }

  /**
   * Begins an attempt. `connected` is told of the wire, which may not stand yet; `closed` that it came to nothing, or ended.
   * @param isNeeded false: not worth starting a server for
   */
  begin(isNeeded: boolean, events: WireEvents & { connected(wire: Wire): void }): void {
    const attempt = ++this.#attempt;
    const isPresent = (): boolean => attempt === this.#attempt;
    const closed = (error: Error | null): void => {
      if (isPresent()) events.closed(error);
    };
    const lines = (some: readonly string[]): void => {
      if (isPresent()) events.lines(some);
    };
    const connect = (): void => {
      if (!isPresent()) return;
      this.wire = this.#dial({ lines, closed });
      events.connected(this.wire);
    };
    if (this.#prepare === undefined || !isNeeded) connect();
    else this.#prepare().then(connect, closed);
  }

  /** The present attempt is over; gives its wire, which is the caller's to close. */
  end(): Wire | null {
    const { wire } = this;
    this.#attempt++;
    this.wire = null;
    return wire;
  }
}
