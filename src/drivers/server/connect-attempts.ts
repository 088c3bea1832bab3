/** One attempt to connect at a time: what an earlier one still tells is not heard. */

import type { Connector, Transport, TransportEvents } from "../../net/transport.ts";

export class ConnectAttempts {
  readonly #connector: Connector;
  /** Called, and awaited, before each attempt; it may start the server. */
  readonly #beforeConnect: (() => Promise<void>) | undefined;
  #attemptId = 0;
  /** The wire of the present attempt; null: it has none yet, or there is none. */
  transport: Transport | null = null;

  constructor(connector: Connector, beforeConnect: (() => Promise<void>) | undefined) {
    this.#connector = connector;
    this.#beforeConnect = beforeConnect;
  }

  /** Is it for us to start the server? */
  get canStartServer(): boolean {
    return this.#beforeConnect !== undefined;
  }

  /**
   * Begins an attempt. `onConnected` is told of the wire, which may not stand yet; `onClosed` that it came to nothing, or ended.
   * @param isNeeded false: not worth starting a server for
   */
  start(isNeeded: boolean, events: TransportEvents & { onConnected(wire: Transport): void }): void {
    const attemptId = ++this.#attemptId;
    const isCurrent = (): boolean => attemptId === this.#attemptId;
    const onClosed = (error: Error | null): void => {
      if (isCurrent()) events.onClosed(error);
    };
    const onLines = (received: readonly string[]): void => {
      if (isCurrent()) events.onLines(received);
    };
    const connect = (): void => {
      if (!isCurrent()) return;
      this.transport = this.#connector({ onLines, onClosed });
      events.onConnected(this.transport);
    };
    if (this.#beforeConnect === undefined || !isNeeded) connect();
    else this.#beforeConnect().then(connect, onClosed);
  }

  /** The present attempt is over; gives its wire, which is the caller's to close. */
  end(): Transport | null {
    const { transport } = this;
    this.#attemptId++;
    this.transport = null;
    return transport;
  }
}
