/** The options and the listener of a connection. */

import type { Clock } from "../../../util/clock.ts";
import type { AuthInfo } from "./handshake.ts";
import type { RetryPolicy } from "./retry-policy.ts";
import type { SaslOptions } from "./sasl.ts";
import type { ServerAddress } from "./server-list.ts";
import type { Connector } from "./transport.ts";

/** How to connect and authenticate. */
export interface ConnectionOptions {
  /** At least one. */
  readonly servers: readonly ServerAddress[];
  readonly connector: Connector;
  readonly clock: Clock;
  readonly random: () => number;
  readonly retry: RetryPolicy;
  /** The requested session length; the servers limit it. */
  readonly sessionMs: number;
  readonly auth: readonly AuthInfo[];
  readonly sasl: SaslOptions | null;
}

/** Receives the events of a connection. */
export interface ConnectionListener {
  /** isNewSession: the session is another one than before, or the first. */
  onConnected(isNewSession: boolean): void;
  /** The connection is lost; the session may still live. */
  onSuspended(): void;
  /** The session has ended. */
  onExpired(): void;
  /** The connection was closed, or was refused permanently. */
  onClosed(error: Error): void;
}
