/** What a connection and its driver know of each other. */

import type { Connector } from "../../net/transport.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";

/** What the connection needs of its driver. */
export interface ConnectionListener {
  /** Our first line. */
  encodeHello(): string;
  /** Both sides have said hello. What is sent from here goes before all calls that were held back. */
  onConnected(hello: ServerHello, previousRunId: string | null): void;
  /** A frame that answers no call. */
  onPush(frame: readonly unknown[]): void;
  /** Does anybody need the connection, beside the calls under way? */
  isNeeded(): boolean;
  /** Must the server hear from us although there is nothing to say? */
  needsHeartbeat(): boolean;
}

export interface ConnectionOptions {
  readonly connector: Connector;
  /** Called, and awaited, before each dial; it may start the server. */
  readonly beforeConnect: (() => Promise<void>) | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly connectTimeoutMs: number;
}
