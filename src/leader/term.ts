/** One term of a leader: the lock of its election, with a signal that is also aborted when the leader resigns. */

import type { Lock } from "../client/lock.ts";
import { lockLostError } from "../errors.ts";

/** One term of office of a leader, from the grant of its lock until it is lost or given up. */
export interface Term
  extends Pick<Lock, "token" | "grants" | "signal" | "throwIfLost" | "remainingMs">,
    AsyncDisposable {
  /** The name of the election. */
  readonly name: string;
  /**
   * The fencing token: higher than that of every earlier term of this name. Send it with every write, and let the resource
   * refuse lower ones. @throws UnsupportedError on a store without fencing
   */
  readonly token: bigint;
  /**
   * Aborted with a LockLostError as soon as the term has ended or should end: the lease ended by this process's clock, the
   * lock was revoked, or the leader resigned or was closed. Always before another leader can start, except after the machine
   * was suspended: then when the store has answered, or after a sixth of the lease. throwIfLost() tells at once.
   */
  readonly signal: AbortSignal;
  /** @throws LockLostError if the term has ended by this process's clocks, even before a timer has aborted the signal */
  throwIfLost(): void;
  /** The milliseconds left of the lease by this process's clock, minus a safety margin; 0 when the term has ended. */
  readonly remainingMs: number;
  /**
   * Ends the term at once, for the code that does its work: aborts `signal`, then releases the lock. True if the term lasted
   * until now, false if it was lost before. A second call returns the first result.
   */
  resign(): Promise<boolean>;
}

/**
 * Invariant: the signal is aborted before the release is sent. So a leader that resigns is told before the next one starts;
 * one that loses its lock is told by the lock's own signal, at the deadline of its lease.
 */
export class LeaderTerm implements Term {
  readonly name: string;
  readonly #lock: Lock;
  readonly #ended = new AbortController();

  constructor(name: string, lock: Lock) {
    this.name = name;
    this.#lock = lock;
    const { signal } = lock;
    const onLost = (): void => this.#ended.abort(signal.reason);
    if (signal.aborted) onLost();
    else signal.addEventListener("abort", onLost, { once: true });
  }

  get token(): bigint {
    return this.#lock.token;
  }

  get grants(): Lock["grants"] {
    return this.#lock.grants;
  }

  get signal(): AbortSignal {
    // reading the signal of the lock compares the clocks with the lease: a process that was stopped learns of its loss here
    void this.#lock.signal;
    return this.#ended.signal;
  }

  throwIfLost(): void {
    this.signal.throwIfAborted();
    this.#lock.throwIfLost();
  }

  get remainingMs(): number {
    return this.signal.aborted ? 0 : this.#lock.remainingMs;
  }

  /** Tells the code of the term to stop, and keeps the lock until it has. */
  end(): void {
    this.#ended.abort(lockLostError("released", this.#lock.keys));
  }

  async resign(): Promise<boolean> {
    this.end();
    return this.#lock.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.resign();
  }
}
