/** What an acquire gives: a handle over one tenure, or over several where the store takes keys one by one or some were joined. */

import type { LockLostError } from "../errors.ts";
import { UnsupportedError } from "../errors.ts";
import type { LocalHold } from "./local-hold.ts";
import { formatKeys, lockLostError } from "./local-hold.ts";
import type { FlowHolds } from "./reentrancy.ts";
import type { DetachOptions } from "./transfer.ts";

/** A lock that is held, or was. */
export interface Lock extends AsyncDisposable {
  /** The keys, as the caller named them, in key order. */
  readonly keys: readonly string[];
  /**
   * Rises with every holder of these keys. Send it with every write and let the resource refuse older ones. For several
   * keys the highest of theirs; they differ only where the store cannot claim several keys at once, or some were joined.
   * @throws UnsupportedError on a store without fencing
   */
  readonly token: bigint;
  /** The token for one of several keys. @throws TypeError if the key is not among `keys`; UnsupportedError */
  tokenOf(key: string): bigint;
  /**
   * Aborted, with a LockLostError, as soon as we can no longer be sure to hold. Made when first read. With `renew: false`
   * nothing watches the lease: ask throwIfLost().
   */
  readonly signal: AbortSignal;
  /** @throws LockLostError if the lease has run out by our clocks, even before the signal's timer had its turn */
  throwIfLost(): void;
  /** Runs fn as if inside using(): nested requests for these keys join this lock. */
  run<T>(fn: () => T): T;
  /** Milliseconds of the lease left by our clock, the margin for stopping taken off; 0 when lost. */
  readonly remainingMs: number;
  /**
   * Stops renewing and gives a secret reference, with which attach() takes the lock up again anywhere. The lease runs on
   * unrenewed, a full one or what `ttl` says. @throws UnsupportedError inside using(), for ttl "session", on session-only
   * stores, or when it was joined; LockLostError; TypeError; DriverError if the store did not confirm: then the lock is
   * still held here, but with `ttl` it is given up and ends by itself
   */
  detach(options?: DetachOptions): Promise<string>;
  /**
   * Gives the lock back: true if it was ours until now, false if it had been lost. Never throws for a loss; calling it
   * again gives the first answer. Settles when the store has answered; if the store cannot be reached, when it has
   * forgotten the claim by itself.
   */
  release(): Promise<boolean>;
}

export class LockHandle implements Lock {
  readonly keys: readonly string[];
  /** Private, so that a handle that is printed or logged shows no claim id: that is a secret. */
  readonly #localHolds: readonly [LocalHold, ...LocalHold[]];
  readonly #flowHolds: FlowHolds;
  #released: Promise<boolean> | null = null;
  #signal: AbortSignal | null = null;
  /** Why a lock that was not released is no longer ours: detached, or given up. */
  #loss: LockLostError | null = null;

  constructor(localHolds: readonly [LocalHold, ...LocalHold[]], keys: readonly string[], flowHolds: FlowHolds) {
    this.#localHolds = localHolds;
    this.keys = keys;
    this.#flowHolds = flowHolds;
  }

  /** What it consists of. */
  get localHolds(): readonly [LocalHold, ...LocalHold[]] {
    return this.#localHolds;
  }

  get token(): bigint {
    let highest = 0n;
    for (const localHold of this.#localHolds) {
      requireFencing(localHold);
      if (localHold.token > highest) highest = localHold.token;
    }
    return highest;
  }

  tokenOf(key: string): bigint {
    const localHold = this.keys.includes(key)
      ? this.#localHolds.find(({ target }) => target.keys.includes(key))
      : undefined;
    if (localHold === undefined) throw new TypeError(`key must be one of ${formatKeys(this.keys)}`);
    requireFencing(localHold);
    return localHold.token;
  }

  get signal(): AbortSignal {
    const signals = this.#localHolds.map(({ signal }) => signal);
    this.#signal ??= signals.length === 1 ? (signals[0] as AbortSignal) : AbortSignal.any(signals);
    return this.#signal;
  }

  throwIfLost(): void {
    const error = this.currentLoss();
    if (error !== null) throw error;
  }

  /** The loss that throwIfLost() would throw. */
  currentLoss(): LockLostError | null {
    if (this.#released !== null) return this.#loss ?? lockLostError("released", this.keys);
    for (const localHold of this.#localHolds) if (!localHold.isHeld) return localHold.toLostError();
    return null;
  }

  run<T>(fn: () => T): T {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    this.throwIfLost();
    return this.#flowHolds.run(this.#localHolds, fn);
  }

  get remainingMs(): number {
    if (this.#released !== null) return 0;
    return Math.min(...this.#localHolds.map((localHold) => localHold.remainingMs));
  }

  async detach(options?: DetachOptions): Promise<string> {
    // few programs ever detach: they load it when they do
    const { detach } = await import("./transfer.ts");
    return detach(this, options);
  }

  /** It is no longer ours, and nothing is to be released here. */
  transferOut(loss: LockLostError): void {
    this.#released = Promise.resolve(false);
    this.#loss = loss;
    for (const localHold of this.#localHolds) localHold.queue.transferOut(localHold);
  }

  release(): Promise<boolean> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#released !== null) return;
    if (!(await this.release())) throw this.releaseLoss();
  }

  /** Why release() answered false. */
  releaseLoss(): LockLostError {
    return (
      this.#localHolds.find(({ lostReason }) => lostReason !== null)?.toLostError() ??
      lockLostError("unknown", this.keys)
    );
  }

  #release(): Promise<boolean> {
    if (this.#localHolds.length === 1) {
      const released = this.#localHolds[0].release();
      return typeof released === "boolean" ? Promise.resolve(released) : released;
    }
    return Promise.all(this.#localHolds.map(async (localHold) => localHold.release())).then(
      (results) => !results.includes(false),
    );
  }
}

function requireFencing(localHold: LocalHold): void {
  const { driver } = localHold.queue.parent.engine;
  if (!driver.traits.fencing) {
    throw new UnsupportedError(`${driver.name} has no fencing tokens`, { keys: localHold.target.keys });
  }
}
