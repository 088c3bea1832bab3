/** One local request while it waits: for the store, or behind other requests of this client. */

import { setMaxListeners } from "node:events";
import type { Engine } from "./engine.ts";
import { nextRequest, outcomeOf } from "./event-fields.ts";
import type { FailedOutcome } from "./events.ts";
import type { LocalHold } from "./local-hold.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireSettings } from "./options.ts";
import type { ScheduledTask } from "./scheduler.ts";

/** The local queue that a waiter has joined. */
export interface WaiterQueue {
  readonly context: {
    readonly engine: Engine;
    readonly queueEvents: { emitFailed(waiter: Waiter, error: unknown, outcome: FailedOutcome): void };
  };
  withdraw(waiter: Waiter, reason: unknown, outcome?: FailedOutcome): void;
  timeOut(waiter: Waiter): void;
}

/** Receives the local hold, or null for a busy tryAcquire(). */
type ResolveWaiter = (localHold: LocalHold | null) => void;

export class Waiter implements ScheduledTask {
  previous: Waiter | null = null;
  next: Waiter | null = null;
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  readonly startedAt: number;
  readonly request: number = nextRequest();
  /** The queue that it waits in; null once it is settled. */
  queue: WaiterQueue | null = null;
  /** The queue that it has joined. */
  #joined: WaiterQueue | null = null;
  // a scheduled task: due at the end of the wait
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;
  readonly #resolve: ResolveWaiter;
  readonly #reject: (error: unknown) => void;
  #onAbort: (() => void) | null = null;

  constructor(
    target: LockTarget,
    settings: AcquireSettings,
    startedAt: number,
    resolve: ResolveWaiter,
    reject: (error: unknown) => void,
  ) {
    this.target = target;
    this.settings = settings;
    this.startedAt = startedAt;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** false: the lock is tried once. */
  get waits(): boolean {
    return this.settings.waitMs > 0;
  }

  /**
   * Joins a local queue: from now on the wait can time out or be aborted. @throws what addEventListener of the signal
   * throws
   */
  join(queue: WaiterQueue): void {
    const { waitMs, signal } = this.settings;
    if (signal !== undefined) {
      // the reason is the program's own: it may be an error of ours, or null
      this.#onAbort = () => this.queue?.withdraw(this, signal.reason, "cancelled");
      // many waits may share one signal, with a listener each: suppress Node's warning about a leak
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    this.queue = queue;
    this.#joined = queue;
    if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY)
      queue.context.engine.scheduler.schedule(this, this.startedAt + waitMs);
  }

  onDue(): void {
    this.queue?.timeOut(this);
  }

  /**
   * The request has the lock from now on, also while it is delayed: an abort comes too late, as after any grant.
   * @param delay what it waits for before it resolves; null: nothing
   */
  grant(localHold: LocalHold, delay: Promise<void> | null): void {
    this.leave();
    if (delay === null) this.#resolve(localHold);
    else void delay.then(() => this.#resolve(localHold));
  }

  /**
   * Settles the request with an error, or with null for a busy tryAcquire(); called once, after it has left the queue.
   */
  reject(error: unknown, outcome: FailedOutcome = outcomeOf(error)): void {
    this.leave();
    if (this.settings.isNullIfBusy === true && outcome === "busy") this.#resolve(null);
    else this.#reject(error);
    // after it is settled, like a grant
    this.#joined?.context.queueEvents.emitFailed(this, error, outcome);
  }

  /** Leaves the queue: from now on the wait can neither time out nor be aborted. */
  leave(): void {
    if (this.heapIndex !== -1) this.queue?.context.engine.scheduler.cancel(this);
    this.queue = null;
    if (this.#onAbort !== null) this.settings.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = null;
  }
}
