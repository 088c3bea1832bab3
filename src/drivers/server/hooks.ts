/** What a connection and its driver know of each other. */

import type { Clock } from "../../clock.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import type { Dial } from "./wire.ts";

/** What the connection needs of its driver. */
export interface Hooks {
  /** Our first line. */
  hello(): string;
  /** Both sides have said hello. What is sent from here goes before all calls that were held back. */
  up(hello: ServerHello, previousStart: string | null): void;
  /** A frame that answers no call. */
  pushed(frame: readonly unknown[]): void;
  /** Does anybody need the connection, beside the calls under way? */
  isNeeded(): boolean;
  /** Must the server hear from us although there is nothing to say? */
  mustSpeak(): boolean;
}

export interface ConnectionOptions {
  readonly dial: Dial;
  /** Called, and awaited, before each dial; it may start the server. */
  readonly prepare: (() => Promise<void>) | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly connectTimeoutMs: number;
}
