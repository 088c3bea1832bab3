/** When something must be said over a network, and when a server that says nothing is given up. Pure. */

export class Pulse {
  #spokeAt = 0;
  /** When we spoke first since we last heard something; null: we have not. */
  #askedAt: number | null = null;
  /** When a ping was sent since we last heard something; null: none was. */
  #pingedAt: number | null = null;

  spoke(now: number): void {
    this.#spokeAt = now;
    this.#askedAt ??= now;
  }

  heard(): void {
    this.#askedAt = null;
    this.#pingedAt = null;
  }

  pinged(now: number): void {
    this.#pingedAt ??= now;
  }

  /** Has a ping gone unanswered for that long? */
  isDead(now: number, quietMs: number): boolean {
    return this.#pingedAt !== null && now >= this.#pingedAt + quietMs;
  }

  /**
   * When to ping, or when the ping that was sent is given up; null: there is no need.
   * @param speaks the server must hear from us although there is nothing to say
   */
  dueAt(quietMs: number, speaks: boolean): number | null {
    if (this.#pingedAt !== null) return this.#pingedAt + quietMs;
    const answerDue = this.#askedAt === null ? null : this.#askedAt + quietMs;
    return speaks ? Math.min(this.#spokeAt + quietMs, answerDue ?? Number.POSITIVE_INFINITY) : answerDue;
  }
}
