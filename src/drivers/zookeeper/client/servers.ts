/** The servers of an ensemble, which of them has its turn, and when the next one has. */

import type { RetryPolicy } from "./retry.ts";
import { restMs } from "./retry.ts";

/** One server of an ensemble. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** How long an attempt may take at least, if the session leaves so much to each server, and at most, in milliseconds. */
const [LEAST_MS, MOST_MS] = [2_000, 5_000];

/**
 * How long an attempt at one server may take: a server that is just starting may take a connection and forget it, so that
 * it must be asked again while the session lasts.
 */
function attemptMs(sessionMs: number, servers: number): number {
  const share = sessionMs / servers;
  return Math.min(share, Math.max(LEAST_MS, Math.min(share / 2, MOST_MS)));
}

export class Servers {
  readonly #all: readonly ServerAddress[];
  readonly #random: () => number;
  readonly #retry: RetryPolicy;
  #round: ServerAddress[] = [];
  #failures = 0;
  /** Of the last attempt; null: it said nothing, or there was none. */
  failure: Error | null = null;
  #dueAt = 0;

  /** @throws TypeError if there is none */
  constructor(all: readonly ServerAddress[], random: () => number, retry: RetryPolicy) {
    if (all.length === 0) throw new TypeError("servers must name at least one server");
    this.#all = all;
    this.#random = random;
    this.#retry = retry;
  }

  /** When the present attempt has taken too long, or after a failure the next one may begin. */
  get dueAt(): number {
    return this.#dueAt;
  }

  /** The next one in random order, anew for each round, so that clients spread over them. */
  next(now: number, sessionMs: number): ServerAddress {
    if (this.#round.length === 0) this.#round = shuffled(this.#all, this.#random);
    this.#dueAt = now + attemptMs(sessionMs, this.#all.length);
    return this.#round.pop() as ServerAddress;
  }

  reached(): void {
    this.#failures = 0;
  }

  /** Each of them has its turn before there is a pause. */
  failed(now: number, cause: Error | null): void {
    this.failure = cause;
    this.#failures++;
    const rounds = this.#failures / this.#all.length;
    this.#dueAt = now + (Number.isInteger(rounds) ? restMs(this.#retry, rounds) : 0);
  }
}

/** Fisher and Yates. */
function shuffled<T>(all: readonly T[], random: () => number): T[] {
  const mixed = [...all];
  for (let last = mixed.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [mixed[last], mixed[other]] = [mixed[other] as T, mixed[last] as T];
  }
  return mixed;
}
