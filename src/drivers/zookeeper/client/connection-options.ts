/** How a connection is made and proved, and what its owner is told. */

import type { Clock } from "../../../util/clock.ts";
import type { AuthInfo } from "./handshake.ts";
import type { RetryPolicy } from "./retry-policy.ts";
import type { SaslOptions } from "./sasl.ts";
import type { ServerAddress } from "./server-list.ts";
import type { Connector } from "./transport.ts";

/** How connections are made and proved. */
export interface ConnectionOptions {
  /** At least one. */
  readonly servers: readonly ServerAddress[];
  readonly connector: Connector;
  readonly clock: Clock;
  readonly random: () => number;
  readonly retry: RetryPolicy;
  /** What is asked for; the servers have bounds of their own. */
  readonly sessionMs: number;
  readonly auth: readonly AuthInfo[];
  readonly sasl: SaslOptions | null;
}

/** What its owner is told. */
export interface ConnectionListener {
  /** renewed: the session is another one than before, or the first. */
  onConnected(isNewSession: boolean): void;
  /** The connection is lost; the session may still live. */
  onSuspended(): void;
  /** The session is over. */
  onExpired(): void;
  /** It was closed, or is refused for good. */
  onClosed(error: Error): void;
}
