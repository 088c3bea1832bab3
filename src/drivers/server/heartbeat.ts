/** When a heartbeat is due over a network, and when a silent server counts as dead. Pure. */

export class Heartbeat {
  #lastSentAt = 0;
  /** When something was first sent since the last line arrived; null: nothing was. */
  #unansweredSince: number | null = null;
  /** When a ping was sent since the last line arrived; null: none was. */
  #pingSentAt: number | null = null;

  recordSent(now: number): void {
    this.#lastSentAt = now;
    this.#unansweredSince ??= now;
  }

  recordReceived(): void {
    this.#unansweredSince = null;
    this.#pingSentAt = null;
  }

  recordPing(now: number): void {
    this.#pingSentAt ??= now;
  }

  /** Has a ping gone unanswered for that long? */
  isDead(now: number, maxSilenceMs: number): boolean {
    return this.#pingSentAt !== null && now >= this.#pingSentAt + maxSilenceMs;
  }

  /**
   * When to ping, or when the pending ping times out; null: neither is needed.
   * @param mustSend the client must send heartbeats even when it has no calls
   */
  nextDueAt(maxSilenceMs: number, mustSend: boolean): number | null {
    if (this.#pingSentAt !== null) return this.#pingSentAt + maxSilenceMs;
    const answerDueAt = this.#unansweredSince === null ? null : this.#unansweredSince + maxSilenceMs;
    return mustSend ? Math.min(this.#lastSentAt + maxSilenceMs, answerDueAt ?? Number.POSITIVE_INFINITY) : answerDueAt;
  }
}
