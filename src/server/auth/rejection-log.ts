/**
 * What the log is told of those who showed no valid credential: of each, as long as one address has not had too many in a
 * minute; beyond that once a minute, with how many there were, so that nobody fills the log.
 */

import type { ProtocolError } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../config/logger.ts";

const MINUTE_MS = 60_000;

export class RejectionLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  /** Refused at once since the log was told last. */
  #unlogged = 0;
  #nextLogAt = Number.NEGATIVE_INFINITY;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** One was not let in. error: "AUTH", or "LIMIT" for one too many of that address. */
  record({ code }: ProtocolError, address: string): void {
    if (code !== "LIMIT") {
      this.#log("a client was refused: it sent no valid credential", undefined, { level: "warn", address });
      return;
    }
    this.#unlogged++;
    const now = this.#clock.now();
    if (now < this.#nextLogAt) return;
    const fields = { level: "warn" as const, address, refused: this.#unlogged };
    this.#log("too many wrong credentials: refused without delay, and logged once a minute", undefined, fields);
    this.#nextLogAt = now + MINUTE_MS;
    this.#unlogged = 0;
  }
}
