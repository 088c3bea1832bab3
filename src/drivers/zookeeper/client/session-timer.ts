/**
 * How long a session lasts, by our own clock. The server ends a session when it has heard nothing of it for its timeout. It
 * heard of us, at the earliest, when we sent the last thing that it has answered (`provenAt`); so until provenAt + timeout
 * it cannot have ended it. Clock rates may differ by 1 %: a hundredth is taken off.
 *
 * Invariant: endsAt() never lies behind the moment at which the server that answered may end the session, if it is the leader or
 * the only one. It is the leader that ends sessions. A follower tells it twice a tick whom it heard, so what a follower
 * answered last before it is cut off may never be told. Then the leader counts from what was said before, at most half a tick
 * and one pause of ours (PING_AFTER_SHARE) earlier. A tenth of the session, which holders leave unused (core/claim), covers that for
 * sessions of at least 15 ticks, as by default. That a leader answers at all is the driver's to ask (renew).
 */

const CLOCK_RATE_FACTOR = 0.99;
/** Something is said when so much of the timeout has passed since we last said anything (ADR 0022). */
const PING_AFTER_SHARE = 1 / 15;
/** A server that has said nothing for so much of the timeout is not there: a third is left to find another. */
const DEAD_AFTER_SHARE = 2 / 3;

/** A session as we hold it: its number, what proves that it is ours, and how long it lives. */
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
  /** When those pings left that have no answer yet. */
  #pingsSentAt: number[] = [];

  constructor(timeoutMs: number, now: number) {
    this.timeoutMs = timeoutMs;
    this.#lastSentAt = now;
    this.#lastReceivedAt = now;
    this.#provenAt = now;
  }

  /** A connection was made, and the session made or found again on it: `sentAt` is when we asked for that. */
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

  /** Any byte shows that the server is there. */
  recordReceived(now: number): void {
    this.#lastReceivedAt = now;
  }

  /** What we sent then was answered. */
  recordAnswered(sentAt: number): void {
    if (sentAt > this.#provenAt) this.#provenAt = sentAt;
  }

  recordPing(now: number): void {
    this.#lastSentAt = now;
    this.#pingsSentAt.push(now);
  }

  /** Pings are answered in their order. */
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
