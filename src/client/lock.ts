/** What an acquire gives: a handle over one tenure, or over several where the store takes keys one by one or some were joined. */

import type { LockLostError } from "../errors.ts";
import { UnsupportedError } from "../errors.ts";
import type { Context } from "./context.ts";
import type { DetachOptions } from "./detach.ts";
import type { Tenure } from "./tenure.ts";
import { lostError, named } from "./tenure.ts";

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
  readonly #tenures: readonly [Tenure, ...Tenure[]];
  readonly #context: Context;
  #released: Promise<boolean> | null = null;
  #signal: AbortSignal | null = null;
  /** Why a lock that was not released is no longer ours: detached, or given up. */
  #gone: LockLostError | null = null;

  constructor(tenures: readonly [Tenure, ...Tenure[]], keys: readonly string[], context: Context) {
    this.#tenures = tenures;
    this.keys = keys;
    this.#context = context;
  }

  /** What it consists of. */
  get tenures(): readonly [Tenure, ...Tenure[]] {
    return this.#tenures;
  }

  get token(): bigint {
    let highest = 0n;
    for (const tenure of this.#tenures) {
      checkFencing(tenure);
      if (tenure.token > highest) highest = tenure.token;
    }
    return highest;
  }

  tokenOf(key: string): bigint {
    const tenure = this.keys.includes(key) ? this.#tenures.find(({ target }) => target.keys.includes(key)) : undefined;
    if (tenure === undefined) throw new TypeError(`key must be one of ${named(this.keys)}`);
    checkFencing(tenure);
    return tenure.token;
  }

  get signal(): AbortSignal {
    const signals = this.#tenures.map(({ signal }) => signal);
    this.#signal ??= signals.length === 1 ? (signals[0] as AbortSignal) : AbortSignal.any(signals);
    return this.#signal;
  }

  throwIfLost(): void {
    const error = this.lossNow();
    if (error !== null) throw error;
  }

  /** The loss that throwIfLost() would throw. */
  lossNow(): LockLostError | null {
    if (this.#released !== null) return this.#gone ?? lostError("released", this.keys);
    for (const tenure of this.#tenures) if (!tenure.isHeld) return tenure.lostError();
    return null;
  }

  run<T>(fn: () => T): T {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    this.throwIfLost();
    return this.#context.run(this.#tenures, fn);
  }

  get remainingMs(): number {
    if (this.#released !== null) return 0;
    return Math.min(...this.#tenures.map((tenure) => tenure.remainingMs));
  }

  async detach(options?: DetachOptions): Promise<string> {
    // few programs ever detach: they load it when they do
    const { detach } = await import("./detach.ts");
    return detach(this, options);
  }

  /** It is no longer ours, and nothing is to be released here. */
  letGo(why: LockLostError): void {
    this.#released = Promise.resolve(false);
    this.#gone = why;
    for (const tenure of this.#tenures) tenure.lane.letGo(tenure);
  }

  release(): Promise<boolean> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#released !== null) return;
    if (!(await this.release())) throw this.lossAtRelease();
  }

  /** Why release() answered false. */
  lossAtRelease(): LockLostError {
    return this.#tenures.find(({ lostReason }) => lostReason !== null)?.lostError() ?? lostError("unknown", this.keys);
  }

  #release(): Promise<boolean> {
    if (this.#tenures.length === 1) {
      const dropped = this.#tenures[0].drop();
      return typeof dropped === "boolean" ? Promise.resolve(dropped) : dropped;
    }
    return Promise.all(this.#tenures.map(async (tenure) => tenure.drop())).then((held) => !held.includes(false));
  }
}

function checkFencing(tenure: Tenure): void {
  const { driver } = tenure.lane.host.engine;
  if (!driver.traits.fencing) {
    throw new UnsupportedError(`${driver.name} has no fencing tokens`, { keys: tenure.target.keys });
  }
}
