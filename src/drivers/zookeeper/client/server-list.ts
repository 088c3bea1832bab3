/** The servers of an ensemble: which one to try next, and when. */

import { backoffMs } from "../../../util/backoff.ts";
import { describeValue } from "../../../util/duration.ts";

/** One server of an ensemble. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** The default policy: full jitter of a bound that doubles from the first to the second, in milliseconds. */
export const FIRST_BACKOFF_MS = 20;
export const MAX_BACKOFF_MS = 1_000;
const MAX_USER_BACKOFF_MS = 3_600_000;

/**
 * The least time for one attempt, if the session is long enough for that at each server, and the most, in milliseconds.
 */
const [MIN_ATTEMPT_MS, MAX_ATTEMPT_MS] = [2_000, 5_000];

/**
 * How long an attempt at one server may take. A server that is just starting may accept a connection and then ignore
 * it, so it must be tried again while the session lasts.
 */
function toAttemptTimeoutMs(sessionMs: number, servers: number): number {
  const share = sessionMs / servers;
  return Math.min(share, Math.max(MIN_ATTEMPT_MS, Math.min(share / 2, MAX_ATTEMPT_MS)));
}

/**
 * Returns the delay in milliseconds after this many failed rounds in a row (1, 2, ...); in a round each server is tried
 * once. It does not limit waiting: a caller's `wait` does, and the session's clock ends the session.
 */
export type RetryPolicy = (rounds: number) => number;

/**
 * A delay that doubles from firstMs to maxMs, with full jitter.
 * @throws TypeError for invalid times
 */
export function exponential(firstMs: number, maxMs: number, random: () => number = Math.random): RetryPolicy {
  if (!(firstMs > 0 && firstMs <= maxMs && Number.isFinite(maxMs))) {
    throw new TypeError(
      `exponential() takes two durations in milliseconds, not ${describeValue(firstMs)} and ${describeValue(maxMs)}`,
    );
  }
  return (rounds) => backoffMs(rounds, random(), maxMs, firstMs);
}

/** Calls a user-supplied policy; an invalid delay is replaced by the default's maximum. */
export function toBackoffMs(retry: RetryPolicy, rounds: number): number {
  const ms = retry(rounds);
  return ms >= 0 && ms <= MAX_USER_BACKOFF_MS ? ms : MAX_BACKOFF_MS;
}

export class ServerList {
  readonly #addresses: readonly ServerAddress[];
  readonly #random: () => number;
  readonly #retry: RetryPolicy;
  #round: ServerAddress[] = [];
  #failures = 0;
  /** The error of the last failed attempt; null: it had none, or no attempt failed. */
  failure: Error | null = null;
  #dueAt = 0;

  /** @throws TypeError if there are no servers */
  constructor(addresses: readonly ServerAddress[], random: () => number, retry: RetryPolicy) {
    if (addresses.length === 0) throw new TypeError("servers must name at least one server");
    this.#addresses = addresses;
    this.#random = random;
    this.#retry = retry;
  }

  /** When the current attempt times out, or, after a failure, when the next one may begin. */
  get dueAt(): number {
    return this.#dueAt;
  }

  /** The next server. Each round has a new random order, so that clients spread over the servers. */
  next(now: number, sessionMs: number): ServerAddress {
    if (this.#round.length === 0) this.#round = shuffle(this.#addresses, this.#random);
    this.#dueAt = now + toAttemptTimeoutMs(sessionMs, this.#addresses.length);
    return this.#round.pop() as ServerAddress;
  }

  onConnected(): void {
    this.#failures = 0;
  }

  /** Each server is tried once before there is a pause. */
  onFailed(now: number, cause: Error | null): void {
    this.failure = cause;
    this.#failures++;
    const rounds = this.#failures / this.#addresses.length;
    this.#dueAt = now + (Number.isInteger(rounds) ? toBackoffMs(this.#retry, rounds) : 0);
  }
}

/** The Fisher-Yates shuffle. */
function shuffle<T>(items: readonly T[], random: () => number): T[] {
  const result = [...items];
  for (let lastIndex = result.length - 1; lastIndex > 0; lastIndex--) {
    const otherIndex = Math.floor(random() * (lastIndex + 1));
    [result[lastIndex], result[otherIndex]] = [result[otherIndex] as T, result[lastIndex] as T];
  }
  return result;
}
