/**
 * Logs failed authentication: each failure as long as an address stays within its limit per minute; beyond that one
 * line a minute with their number, so that no client can flood the log.
 */

import type { ProtocolError } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../config/logger.ts";

const MINUTE_MS = 60_000;

export class RejectionLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  /** Failures since the last log line that were not logged. */
  #unlogged = 0;
  #nextLogAt = Number.NEGATIVE_INFINITY;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Records a failure. error: "AUTH", or "LIMIT" if the address has exceeded its limit. */
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
