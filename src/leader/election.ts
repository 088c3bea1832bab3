/**
 * Locks.leader(): a candidate for the leadership of a name, over an exclusive lock on the key of that name.
 *
 *   idle      no loop runs: it is no candidate
 *   waiting   a loop waits for its claim in the store's queue
 *   leading   the loop's body runs with a term
 *   ended     the term's signal is aborted; its lock is held until the body ends, unless it is lost or released before
 *
 * Invariants: a term begins only with a grant of the store, whose token is higher than those of all earlier terms of the name.
 * The signal of a term is aborted before its lock is released, and at the deadline of its lease at the latest. A loop begins no
 * term before the body of its last one has ended and its lock was released. See docs/design/leader.md.
 */

import type { Client } from "../client/client.ts";
import type { Lock } from "../client/lock.ts";
import type { LockTarget } from "../client/lock-spec.ts";
import { mutexTarget } from "../client/lock-spec.ts";
import type { AcquireSettings, TryOptions } from "../client/options.ts";
import { parseAcquireOptions, signalRule } from "../client/options.ts";
import { ClosedError, DeadlockError, formatKeys } from "../errors.ts";
import type { Duration } from "../util/duration.ts";
import { parseDuration } from "../util/duration.ts";
import { noProblem, validateOptions } from "../util/validate.ts";
import type { Leader } from "./leader.ts";
import type { LeaderTerm, Term } from "./term.ts";

const DEFAULT_INTERVAL_MS = 1_000;
const MIN_INTERVAL_MS = 10;

/** The options of leader(). */
export interface LeaderOptions extends Pick<TryOptions, "ttl"> {
  /** Shown to observers, and in lists of locks: who leads, or where to reach it; at most 256 bytes. Default: the client's. */
  readonly label?: string | undefined;
  /** The longest term: after this time it ends, and another candidate may lead. Default: the client's `maxHold`. */
  readonly maxHold?: Duration | undefined;
  /**
   * Stops the election: its loops end, without an error, and so does a running term, as by resign(). Default: none.
   */
  readonly signal?: AbortSignal | undefined;
}

/** The options of observe(). */
export interface ObserveOptions {
  /** How often the store is asked, at least 10 ms. Default 1 s. */
  readonly interval?: Duration | undefined;
  /** Ends the loop, without an error. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** A candidate for the leadership of a name. Iterating over it campaigns: each element is a term. */
export interface Election extends AsyncDisposable {
  readonly name: string;
  /**
   * Waits for the leadership and yields its term. At the end of the loop's body the term ends, and the loop waits at the end
   * of the queue for the next one; leaving the loop by break, return or an error ends the term, too. The loop ends without
   * an error when the election or the client is closed, or the option `signal` aborted.
   * @throws DeadlockError if the async flow holds the key; ClosedError if the client was closed before; StoreRefusedError;
   * UnsupportedError; StoreError if the store cannot be opened. Otherwise waits until the store can be reached
   */
  [Symbol.asyncIterator](): AsyncGenerator<Term, void, void>;
  /**
   * Asks the leader to stop: aborts the signal of a running term, which passes on when the loop's body has ended. The election
   * goes on. Without a term it does nothing.
   */
  resign(): void;
  /**
   * Returns the leader as the store shows it now, or null. @throws StoreError; StoreRefusedError; ClosedError; UnsupportedError
   * if the store does not show the claims of other clients
   */
  current(): Promise<Leader | null>;
  /**
   * Yields the leader, or null, and then each other leader that a read of the store finds. A short term may be missed. A store
   * that cannot be reached delays the next element. Ends when the election or the client is closed.
   * @throws TypeError naming the option; as current(), except StoreError, from the loop
   */
  observe(options?: ObserveOptions): AsyncGenerator<Leader | null, void, void>;
  /** Ends a running term at once, without waiting for the loop's body, and all loops of this election. */
  close(): Promise<void>;
}

/** @throws TypeError naming the wrong name or option, or `renew` if the client does not renew leases */
export function createElection(client: Client, name: string, options: LeaderOptions): Election {
  const { settings } = client;
  const target = mutexTarget(settings.prefix, name, "name");
  if (!settings.renew) throw new TypeError("renew must be true in the options of a client that calls leader()");
  const acquireSettings = parseAcquireOptions(options, settings, "leader");
  return new LockElection(client, name, target, acquireSettings);
}

class LockElection implements Election {
  readonly name: string;
  readonly #client: Client;
  readonly #target: LockTarget;
  readonly #settings: AcquireSettings;
  readonly #closing = new AbortController();
  /** Aborted by close() and by the user's signal. */
  readonly #stopping: AbortSignal;
  /** The terms whose bodies run: several if loops run beside each other, of which at most one has the lock. */
  readonly #terms = new Set<LeaderTerm>();

  constructor(client: Client, name: string, target: LockTarget, settings: AcquireSettings) {
    this.name = name;
    this.#client = client;
    this.#target = target;
    this.#stopping = joinSignals(this.#closing.signal, settings.signal);
    // a claim of its own: the store shows the label and the token of each term
    this.#settings = {
      ...settings,
      waitMs: Number.POSITIVE_INFINITY,
      signal: this.#stopping,
      queueKind: "alone",
    };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Term, void, void> {
    // loaded on first use, since few programs elect a leader
    const { LeaderTerm } = await import("./term.ts");
    if (!(await this.#open())) return;
    for (;;) {
      const lock = await this.#acquire();
      if (lock === null) return;
      const term = new LeaderTerm(this.name, lock);
      const endTerm = (): void => term.end();
      this.#terms.add(term);
      // only while a term lasts: the user's signal would keep an election that has a listener in memory
      this.#stopping.addEventListener("abort", endTerm, { once: true });
      try {
        // in the turn that adds the term: a stop before it found no term, a later one finds this one
        if (this.#stopping.aborted) return;
        yield term;
      } finally {
        this.#stopping.removeEventListener("abort", endTerm);
        this.#terms.delete(term);
        await term.resign();
      }
    }
  }

  resign(): void {
    for (const term of this.#terms) term.end();
  }

  async current(): Promise<Leader | null> {
    const { readLeader } = await import("./leader.ts");
    return readLeader(this.#client, this.name);
  }

  observe(options: ObserveOptions = {}): AsyncGenerator<Leader | null, void, void> {
    validateOptions("observe", options, { interval: noProblem, signal: signalRule });
    const { interval = DEFAULT_INTERVAL_MS, signal } = options;
    return this.#observe(parseDuration(interval, "interval", MIN_INTERVAL_MS), joinSignals(this.#stopping, signal));
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#terms].map((term) => term.resign()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Opens the client. False: the election was stopped. @throws ClosedError, StoreError, StoreRefusedError */
  async #open(): Promise<boolean> {
    try {
      if (!this.#stopping.aborted) await this.#client.open();
    } catch (error) {
      if (!this.#stopping.aborted) throw error;
    }
    return !this.#stopping.aborted;
  }

  /** The lock of the next term; null if the election was stopped, or its client closed, before the grant. */
  async #acquire(): Promise<Lock | null> {
    if (this.#client.flowHolds.find(this.#target.locks[0].key).length > 0) {
      const keys = [this.name];
      throw new DeadlockError(`deadlock: this async flow already holds ${formatKeys(keys)} and would wait for itself`, {
        keys,
      });
    }
    try {
      return (await this.#client.acquire(this.#target, this.#settings)) as Lock;
    } catch (error) {
      if (this.#stopping.aborted || error instanceof ClosedError) return null;
      throw error;
    }
  }

  async *#observe(intervalMs: number, signal: AbortSignal): AsyncGenerator<Leader | null, void, void> {
    const { watchLeader } = await import("./leader.ts");
    yield* watchLeader(this.#client, this.name, intervalMs, signal);
  }
}

function joinSignals(own: AbortSignal, user: AbortSignal | undefined): AbortSignal {
  return user === undefined ? own : AbortSignal.any([own, user]);
}
