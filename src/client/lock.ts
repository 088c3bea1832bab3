/**
 * The result of an acquire: a handle on one local hold, or on several if the store takes keys one by one or some were
 * joined.
 */

// The types of programs that compile without it, as by default, would lack AsyncDisposable.
/// <reference lib="esnext.disposable" preserve="true" />

import type { LockLostError } from "../errors.ts";
import { formatKeys, lockLostError, UnsupportedError } from "../errors.ts";
import type { LockSpec } from "../spi/driver.ts";
import { publicTag } from "../util/ids.ts";
import type { LockEvent } from "./events.ts";
import { unwatchHandle, watchHandle } from "./forgotten-locks.ts";
import type { LocalHold } from "./local-hold.ts";
import type { DetachOptions } from "./options.ts";
import type { FlowHolds } from "./reentrancy.ts";

/** What the store granted on one key of a lock: what a resource must know to refuse holders that are too late. */
export interface LockGrant {
  /** The key, without the client's prefix. */
  readonly key: string;
  /** The key with the client's prefix, as the store has it. */
  readonly storeKey: string;
  /** The fencing token of this key. */
  readonly token: bigint;
  /**
   * true: the lock has all permits that its limit allows: a mutex, a writer, or a whole semaphore, which no other lock
   * with this limit is held beside. false: a reader, or some permits of a semaphore, beside which others may be held.
   */
  readonly isExclusive: boolean;
  /** Names the claim in lists, and gives no right to it. */
  readonly tag: string;
}

/** A lock that is held or was held. */
export interface Lock extends AsyncDisposable {
  /** The keys, without the client's prefix, in key order. */
  readonly keys: readonly string[];
  /**
   * The fencing token: rises with every holder of these keys. Send it with every write, and let the resource refuse
   * lower ones. For several keys it is the highest of their tokens; these differ only if the store cannot claim several
   * keys at once, or if some keys were joined.
   * @throws UnsupportedError on a store without fencing
   */
  readonly token: bigint;
  /** The token for one of several keys. @throws TypeError if the key is not among `keys`; UnsupportedError */
  tokenOf(key: string): bigint;
  /**
   * The grant of each key, in key order: key, token, and whether it excludes others. @throws UnsupportedError like
   * `token`
   */
  readonly grants: readonly LockGrant[];
  /**
   * Aborted with a LockLostError as soon as the lock is no longer certainly held. Created when first read. With
   * `renew: false` no timer watches the lease: call throwIfLost().
   */
  readonly signal: AbortSignal;
  /**
   * @throws LockLostError if the lease has ended by this process's clocks, even before the timer has aborted the signal
   */
  throwIfLost(): void;
  /** Runs fn as if inside using(): nested requests for these keys join this lock. */
  run<T>(fn: () => PromiseLike<T>): Promise<T>;
  run<T>(fn: () => T): T;
  /** The milliseconds left of the lease by this process's clock, minus a safety margin; 0 when lost. */
  readonly remainingMs: number;
  /**
   * Stops renewing and returns a secret reference with which attach() continues the lock in any process. The lease,
   * full or of length `ttl`, is no longer renewed. @throws UnsupportedError inside using(), for ttl "session", on
   * session-only stores, or if another request has joined the lock; LockLostError; TypeError; StoreError if the store
   * did not confirm: then this client still holds the lock, except with `ttl`, where it gives the lock up and the lease
   * expires
   */
  detach(options?: DetachOptions): Promise<string>;
  /**
   * Releases the lock: true if it was held until now, false if it had been lost. Never throws for a loss; a second call
   * returns the first result. Settles at once if requests of this client wait for the lock; else when the store has
   * answered or, if it cannot be reached, when the claim's lease has certainly expired there; after 0.75 s if nothing
   * else keeps the process alive.
   */
  release(): Promise<boolean>;
}

/**
 * What was done with the handle; its lock may have been lost in each of these states. transferred: detached, or given
 * up.
 */
type HandleState =
  | { readonly kind: "held" }
  | { readonly kind: "releasing" }
  | { readonly kind: "released"; readonly result: Promise<boolean> }
  | { readonly kind: "transferred"; readonly result: Promise<boolean>; readonly loss: LockLostError };

const HELD: HandleState = { kind: "held" };
const RELEASING: HandleState = { kind: "releasing" };
/** The result of each release that needs no answer: a hand-off allocates nothing for it. */
export const HELD_UNTIL_RELEASE: Promise<boolean> = Promise.resolve(true);
const RELEASED_HELD = { kind: "released", result: HELD_UNTIL_RELEASE } as const satisfies HandleState;
const DISPOSED: Promise<void> = Promise.resolve();
const RELEASED_LOST = { kind: "released", result: Promise.resolve(false) } as const satisfies HandleState;

export class LockHandle implements Lock {
  readonly keys: readonly string[];
  /** Private, so that a printed or logged handle does not show the claim id, which is a secret. */
  readonly #localHolds: readonly [LocalHold, ...LocalHold[]];
  readonly #flowHolds: FlowHolds;
  #state: HandleState = HELD;
  #signal: AbortSignal | null = null;
  #isWatched = false;

  constructor(localHolds: readonly [LocalHold, ...LocalHold[]], keys: readonly string[], flowHolds: FlowHolds) {
    this.#localHolds = localHolds;
    this.keys = keys;
    this.#flowHolds = flowHolds;
    for (const localHold of localHolds) localHold.addHandle(this);
  }

  /** From now on warns if the handle becomes garbage before it is released. */
  watch(): void {
    if (this.#isWatched || this.#state.kind !== "held") return;
    this.#isWatched = true;
    watchHandle(this, { keys: this.keys, localHolds: this.#localHolds });
  }

  /** The local holds that this handle combines. */
  get localHolds(): readonly [LocalHold, ...LocalHold[]] {
    return this.#localHolds;
  }

  /**
   * The event fields of its request. If requests were joined, or the store takes keys one by one, those of the first.
   */
  describe(): LockEvent {
    const [localHold] = this.#localHolds;
    return { ...localHold.queue.context.queueEvents.describe(localHold), keys: this.keys };
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
    return this.#grantOf(key).token;
  }

  get grants(): readonly LockGrant[] {
    return this.keys.map((key) => this.#grantOf(key));
  }

  #grantOf(key: string): LockGrant {
    const localHold = this.keys.includes(key)
      ? this.#localHolds.find(({ target }) => target.keys.includes(key))
      : undefined;
    if (localHold === undefined) throw new TypeError(`key must be one of ${formatKeys(this.keys)}`);
    requireFencing(localHold);
    const { keys, locks } = localHold.target;
    // the specs have the order of the keys
    const { key: storeKey, permits, limit } = locks[keys.indexOf(key)] as LockSpec;
    const tag = publicTag(localHold.activeClaim.claim.id);
    return { key, storeKey, token: localHold.token, isExclusive: permits === limit, tag };
  }

  get signal(): AbortSignal {
    for (const localHold of this.#localHolds) localHold.observe();
    const signals = this.#localHolds.map(({ signal }) => signal);
    this.#signal ??= signals.length === 1 ? (signals[0] as AbortSignal) : AbortSignal.any(signals);
    return this.#signal;
  }

  throwIfLost(): void {
    const state = this.#state;
    if (state.kind === "transferred") throw state.loss;
    if (state.kind !== "held") throw lockLostError("released", this.keys);
    for (const localHold of this.#localHolds) if (!localHold.isHeld(localHold.observe())) throw localHold.toLostError();
  }

  run<T>(fn: () => PromiseLike<T>): Promise<T>;
  run<T>(fn: () => T): T;
  run<T>(fn: () => T | PromiseLike<T>): T | Promise<T> {
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    this.throwIfLost();
    return this.#flowHolds.run(this.#localHolds, fn);
  }

  get remainingMs(): number {
    if (this.#state.kind !== "held") return 0;
    return Math.min(...this.#localHolds.map((localHold) => localHold.remainingMs(localHold.observe())));
  }

  async detach(options?: DetachOptions): Promise<string> {
    // loaded on first use, since few programs detach
    const { detach } = await import("./transfer.ts");
    return detach(this, options);
  }

  /** Gives the lock up without releasing its claims. */
  transferOut(loss: LockLostError): void {
    if (this.#isWatched) unwatchHandle(this);
    // a release meanwhile keeps its result
    if (this.#state.kind === "held") this.#state = { kind: "transferred", result: Promise.resolve(false), loss };
    for (const localHold of this.#localHolds) localHold.queue.transferOut(localHold);
  }

  release(): Promise<boolean> {
    const state = this.#state;
    if (state.kind === "releasing") return Promise.resolve().then(() => this.release()); // called by a listener of it
    if (state.kind !== "held") return state.result;
    this.#state = RELEASING;
    if (this.#isWatched) unwatchHandle(this);
    let released: boolean | Promise<boolean>;
    try {
      released = this.#release();
    } catch (error) {
      released = Promise.reject(error); // else the handle would stay "releasing"
    }
    const next = toReleasedState(released);
    this.#state = next;
    return next.result;
  }

  [Symbol.asyncDispose](): Promise<void> {
    const released = this.#state.kind === "held" ? this.release() : HELD_UNTIL_RELEASE;
    if (released === HELD_UNTIL_RELEASE) return DISPOSED;
    return released.then((wasHeld) => {
      if (!wasHeld) throw this.releaseLoss();
    });
  }

  /** Why release() returned false. */
  releaseLoss(): LockLostError {
    return (
      this.#localHolds.find(({ lostReason }) => lostReason !== null)?.toLostError() ??
      lockLostError("unknown", this.keys)
    );
  }

  #release(): boolean | Promise<boolean> {
    if (this.#localHolds.length === 1) return this.#localHolds[0].release();
    return Promise.all(this.#localHolds.map(async (localHold) => localHold.release())).then(
      (results) => !results.includes(false),
    );
  }
}

function requireFencing({ queue, target }: LocalHold): void {
  const { traits, engine } = queue.context;
  if (!traits.fencing) throw new UnsupportedError(`${engine.driver.name} has no fencing tokens`, { keys: target.keys });
}

function toReleasedState(released: boolean | Promise<boolean>): Extract<HandleState, { kind: "released" }> {
  if (typeof released !== "boolean") return { kind: "released", result: released };
  return released ? RELEASED_HELD : RELEASED_LOST;
}
