/** Counts failed authentication by address, and logs it without letting a client flood the log. */

import type { ProtocolError } from "../protocol/handshake.ts";
import type { Logger } from "../server/logger.ts";
import type { Clock } from "../util/clock.ts";

const MINUTE_MS = 60_000;
/** Maximum number of remembered addresses; beyond it the oldest is dropped. */
const MAX_ADDRESSES = 10_000;

/** Counts wrong credentials by address. */
export class FailureLimiter {
  /** Failures of all addresses since the start. */
  total = 0;
  readonly #maxPerMinute: number;
  readonly #now: () => number;
  readonly #windows = new Map<string, { count: number; readonly until: number }>();

  /** maxPerMinute: from one address. */
  constructor(maxPerMinute: number, now: () => number) {
    this.#maxPerMinute = maxPerMinute;
    this.#now = now;
  }

  /** Counts a failure; false: too many from that address in this minute. */
  record(address: string): boolean {
    this.total++;
    const now = this.#now();
    const window = this.#windows.get(address);
    if (window !== undefined && now < window.until) return ++window.count <= this.#maxPerMinute;
    // deleted and inserted at the end: the first entry is always the oldest
    this.#windows.delete(address);
    this.#windows.set(address, { count: 1, until: now + MINUTE_MS });
    if (this.#windows.size > MAX_ADDRESSES) {
      const [oldest] = this.#windows.keys();
      this.#windows.delete(oldest as string);
    }
    return this.#maxPerMinute >= 1;
  }
}

/**
 * Logs failed authentication: each failure as long as an address stays within its limit per minute; beyond that one
 * line a minute with their number.
 */
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
    this.#log("too many wrong credentials: they are logged once a minute", undefined, fields);
    this.#nextLogAt = now + MINUTE_MS;
    this.#unlogged = 0;
  }
}
