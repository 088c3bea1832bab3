/** When something must be said over a network, and when a server that says nothing is given up. Pure. */

export class Heartbeat {
  #lastSentAt = 0;
  /** When we spoke first since we last heard something; null: we have not. */
  #unansweredSince: number | null = null;
  /** When a ping was sent since we last heard something; null: none was. */
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
   * When to ping, or when the ping that was sent is given up; null: there is no need.
   * @param mustSend the server must hear from us although there is nothing to say
   */
  nextDueAt(maxSilenceMs: number, mustSend: boolean): number | null {
    if (this.#pingSentAt !== null) return this.#pingSentAt + maxSilenceMs;
    const answerDueAt = this.#unansweredSince === null ? null : this.#unansweredSince + maxSilenceMs;
    return mustSend ? Math.min(this.#lastSentAt + maxSilenceMs, answerDueAt ?? Number.POSITIVE_INFINITY) : answerDueAt;
  }
}
