/**
 * How long a session lasts, by this client's clock. The server ends a session when it has received nothing from it for
 * the session's timeout. It received something, at the earliest, when the client sent the last request that was
 * answered (`provenAt`); so until provenAt + timeout the server cannot have ended the session. Clock rates may differ
 * by 1 %: a hundredth is subtracted.
 *
 * Invariant: endsAt() is never later than the time at which the server that answered may end the session, if that
 * server is the leader or the only one. Only the leader ends sessions. A follower reports to it twice a tick which
 * sessions were active, so the last request answered by a follower before it is cut off may never be reported. Then the
 * leader counts from an earlier request: at most half a tick and one ping interval (PING_AFTER_SHARE) before. The tenth
 * of the session that holders leave unused (src/claim) covers that for sessions of at least 15 ticks, as by default.
 * The driver checks by a sync that a leader answers at all (renew).
 */

const CLOCK_RATE_FACTOR = 0.99;
/** A ping is sent when this share of the timeout has passed since the last request (decision 0022). */
const PING_AFTER_SHARE = 1 / 15;
/** A server that was silent for this share of the timeout counts as dead: a third remains to find another. */
const DEAD_AFTER_SHARE = 2 / 3;

/** A session: its id, the password that proves its ownership, and its lifetime. */
export interface Session {
  readonly id: bigint;
  readonly password: Buffer;
  readonly timer: SessionTimer;
}

export class SessionTimer {
  timeoutMs: number;
  #lastSentAt: number;
  #lastReceivedAt: number;
  #provenAt: number;
  /** When the unanswered pings were sent. */
  #pingsSentAt: number[] = [];

  constructor(timeoutMs: number, now: number) {
    this.timeoutMs = timeoutMs;
    this.#lastSentAt = now;
    this.#lastReceivedAt = now;
    this.#provenAt = now;
  }

  /** The session was opened or resumed on a new connection. sentAt: when the request for that was sent. */
  onAttached(timeoutMs: number, sentAt: number, now: number): void {
    this.timeoutMs = timeoutMs;
    this.#lastSentAt = sentAt;
    this.#lastReceivedAt = now;
    this.#provenAt = Math.max(this.#provenAt, sentAt);
    this.#pingsSentAt = [];
  }

  recordSent(now: number): void {
    this.#lastSentAt = now;
  }

  /** Any received byte shows that the server is alive. */
  recordReceived(now: number): void {
    this.#lastReceivedAt = now;
  }

  /** A request that was sent at `sentAt` was answered. */
  recordAnswered(sentAt: number): void {
    if (sentAt > this.#provenAt) this.#provenAt = sentAt;
  }

  recordPing(now: number): void {
    this.#lastSentAt = now;
    this.#pingsSentAt.push(now);
  }

  /** Pings are answered in order. */
  recordPingAnswered(): void {
    const sentAt = this.#pingsSentAt.shift();
    if (sentAt !== undefined) this.recordAnswered(sentAt);
  }

  pingDueAt(): number {
    return this.#lastSentAt + this.timeoutMs * PING_AFTER_SHARE;
  }

  deadAt(): number {
    return this.#lastReceivedAt + this.timeoutMs * DEAD_AFTER_SHARE;
  }

  endsAt(): number {
    return this.#provenAt + this.timeoutMs * CLOCK_RATE_FACTOR;
  }
}
