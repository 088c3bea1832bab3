/**
 * What the log is told of those who showed no valid credential: of each, as long as one address has not had too many in a
 * minute; beyond that once a minute, with how many there were, so that nobody fills the log.
 */

import type { Clock } from "../clock.ts";
import type { ProtocolError } from "../protocol/hello.ts";
import type { Log } from "./logging.ts";

const MINUTE_MS = 60_000;

export class Rejections {
  readonly #log: Log;
  readonly #clock: Clock;
  /** Refused at once since the log was told last. */
  #untold = 0;
  #tellAt = Number.NEGATIVE_INFINITY;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** One was not let in. error: "AUTH", or "LIMIT" for one too many of that address. */
  add({ code }: ProtocolError, address: string): void {
    if (code !== "LIMIT") {
      this.#log("a client was not let in: it showed no valid credential", undefined, { level: "warn", address });
      return;
    }
    this.#untold++;
    const now = this.#clock.now();
    if (now < this.#tellAt) return;
    const more = { level: "warn" as const, address, refused: this.#untold };
    this.#log("too many wrong credentials: they are refused at once, and told of once a minute", undefined, more);
    this.#tellAt = now + MINUTE_MS;
    this.#untold = 0;
  }
}
