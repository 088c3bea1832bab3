/** The interface between a connection and its driver. */

import type { Connector } from "../../net/transport.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";

/** What the connection asks of its driver. */
export interface ConnectionListener {
  /** The client's first line. */
  encodeHello(): string;
  /** Both sides have said hello. Calls made here are sent before all calls that waited for the connection. */
  onConnected(hello: ServerHello, previousRunId: string | null): void;
  /** A frame that is not a reply to a call. */
  onPush(frame: readonly unknown[]): void;
  /** Is the connection needed for more than the pending calls? */
  isNeeded(): boolean;
  /** Must the client send heartbeats even when it has no calls? */
  needsHeartbeat(): boolean;
}

export interface ConnectionOptions {
  readonly connector: Connector;
  /** Called, and awaited, before each attempt to connect; it may start the server. */
  readonly beforeConnect: (() => Promise<void>) | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly connectTimeoutMs: number;
}
