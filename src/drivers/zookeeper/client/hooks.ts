/** How a connection is made and proved, and what its owner is told. */

import type { Clock } from "../../../clock.ts";
import type { AuthInfo } from "./handshake.ts";
import type { RetryPolicy } from "./retry.ts";
import type { SaslOptions } from "./sasl.ts";
import type { ServerAddress } from "./servers.ts";
import type { Dial } from "./wire.ts";

/** How connections are made and proved. */
export interface ConnectionOptions {
  /** At least one. */
  readonly servers: readonly ServerAddress[];
  readonly dial: Dial;
  readonly clock: Clock;
  readonly random: () => number;
  readonly retry: RetryPolicy;
  /** What is asked for; the servers have bounds of their own. */
  readonly sessionMs: number;
  readonly auth: readonly AuthInfo[];
  readonly sasl: SaslOptions | null;
}

/** What its owner is told. */
export interface Hooks {
  /** renewed: the session is another one than before, or the first. */
  connected(renewed: boolean): void;
  /** The connection is lost; the session may still live. */
  suspended(): void;
  /** The session is over. */
  expired(): void;
  /** It was closed, or is refused for good. */
  over(error: Error): void;
}
