/** When a heartbeat is due over a network, and when a silent server counts as dead. Pure. */

/** How long either side may be silent, in milliseconds. */
export interface SilenceLimits {
  /** The client: then it sends a heartbeat, if it must. */
  readonly clientMs: number;
  /** The server, after something was sent to it: then the client pings, and after the same time gives the connection up. */
  readonly serverMs: number;
}

/** A server on a busy machine, or far away, answers later than a sixth of the shortest leases. */
const MIN_SERVER_SILENCE_MS = 600;

export class Heartbeat {
  /** Connections given up since the last answer that came in time: if the server is slow, each of them would be. */
  #givenUp = 0;
  /** How long the server may be silent, if none was given up. */
  #serverMs = MIN_SERVER_SILENCE_MS;
  #lastSentAt = 0;
  /** When something was first sent since the last line arrived; null: nothing was. */
  #unansweredSince: number | null = null;
  /** When a ping was sent since the last line arrived; null: none was. */
  #pingSentAt: number | null = null;
  /** Whether the ping was found unanswered before. */
  #wasOverdue = false;

  /**
   * A renewal is sent after a third of a lease. If the network forgets the connection before it, the ping follows at a
   * half of the lease and a new connection at two thirds, so that the claim is renewed on it before nine tenths, when it
   * would be lost (decision 0085).
   * @param shortestLeaseMs of the client's claims
   */
  limits(sessionMs: number, shortestLeaseMs: number): SilenceLimits {
    const clientMs = sessionMs / 3;
    this.#serverMs = Math.max(Math.min(sessionMs, shortestLeaseMs) / 6, MIN_SERVER_SILENCE_MS);
    return { clientMs, serverMs: Math.min(this.#serverMs * 2 ** this.#givenUp, Math.max(clientMs, this.#serverMs)) };
  }

  /** What was sent on another connection says nothing about this one. */
  recordConnected(): void {
    this.#unansweredSince = null;
    this.#pingSentAt = null;
    this.#wasOverdue = false;
  }

  recordSent(now: number): void {
    this.#lastSentAt = now;
    this.#unansweredSince ??= now;
  }

  recordReceived(now: number): void {
    if (this.#unansweredSince !== null && now - this.#unansweredSince <= this.#serverMs) this.#givenUp = 0;
    this.recordConnected();
  }

  recordPing(now: number): void {
    this.#pingSentAt ??= now;
  }

  get isPingPending(): boolean {
    return this.#pingSentAt !== null;
  }

  /**
   * Is the connection to be given up, since the ping has gone unanswered for that long? Not when that is found for the
   * first time: if this process itself was stopped or busy, the answer is there, and is read before the next call of
   * this.
   */
  giveUp(now: number, { serverMs }: SilenceLimits): boolean {
    if (this.#pingSentAt === null || now < this.#pingSentAt + serverMs) return false;
    if (!this.#wasOverdue) {
      this.#wasOverdue = true;
      return false;
    }
    this.#givenUp++;
    return true;
  }

  /**
   * When to ping, or when the pending ping times out; null: neither is needed.
   * @param mustSend the client must send heartbeats even when it has no calls
   */
  nextDueAt({ clientMs, serverMs }: SilenceLimits, mustSend: boolean): number | null {
    if (this.#pingSentAt !== null) return this.#pingSentAt + serverMs;
    const answerDueAt = this.#unansweredSince === null ? null : this.#unansweredSince + serverMs;
    return mustSend ? Math.min(this.#lastSentAt + clientMs, answerDueAt ?? Number.POSITIVE_INFINITY) : answerDueAt;
  }
}
