/** One attempt to connect at a time; late events of an earlier attempt are ignored. */

import type { Connector, Transport, TransportEvents } from "../../net/transport.ts";

export class ConnectAttempts {
  readonly #connector: Connector;
  /** Called, and awaited, before each attempt; it may start the server. */
  readonly #beforeConnect: (() => Promise<void>) | undefined;
  #attemptId = 0;
  /** The transport of the current attempt; null: it has none yet, or there is no attempt. */
  transport: Transport | null = null;

  constructor(connector: Connector, beforeConnect: (() => Promise<void>) | undefined) {
    this.#connector = connector;
    this.#beforeConnect = beforeConnect;
  }

  /** Can this client start the server? */
  get canStartServer(): boolean {
    return this.#beforeConnect !== undefined;
  }

  /**
   * Begins an attempt. `onConnected` receives the transport, which may still be connecting; `onClosed` is called when
   * it fails or ends.
   * @param isNeeded false: do not start a server for this attempt
   */
  start(isNeeded: boolean, events: TransportEvents & { onConnected(transport: Transport): void }): void {
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

  /** Ends the current attempt and returns its transport, which the caller must close. */
  end(): Transport | null {
    const { transport } = this;
    this.#attemptId++;
    this.transport = null;
    return transport;
  }
}
