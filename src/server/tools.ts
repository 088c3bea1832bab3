/** The frames of the lock protocol that serve people rather than locks: history, watch, unwatch, info. */

import type { Principal } from "./access.ts";

/** The connection a frame of the tools came on. */
export interface Caller {
  readonly principal: Principal;
  /** Adds a frame to what is written next. */
  send(frame: string): void;
  /** Writes at once what there is. */
  flush(): void;
}

export interface Tools {
  /**
   * Answers a frame of the tools; false: it is none of them.
   * @throws ProtocolError if it is malformed; Refusal if this one call is refused
   */
  frame(caller: Caller, verb: unknown, n: number, frame: readonly unknown[]): boolean;
  /** The connection has ended, and what it followed. */
  left(caller: Caller): void;
}
