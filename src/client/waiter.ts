/** One local request while it waits: for the store, or behind other requests of this client. */

import { setMaxListeners } from "node:events";
import type { LocalHold } from "./local-hold.ts";
import type { LocalQueue } from "./local-queue.ts";
import type { LockTarget } from "./lock-target.ts";
import type { AcquireSettings } from "./options.ts";
import type { ScheduledTask } from "./scheduler.ts";

export class Waiter implements ScheduledTask {
  previous: Waiter | null = null;
  next: Waiter | null = null;
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  /** `wait: 0`: if the lock is not granted at once, it is busy. */
  readonly noWait: boolean;
  /** tryAcquire(): busy resolves with null instead of an error that names the holder. */
  readonly isTry: boolean;
  readonly startedAt: number;
  /** The queue that it waits in; null once it is settled. */
  queue: LocalQueue | null = null;
  // a scheduled task: due at the end of the wait
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;
  readonly #toResult: (localHold: LocalHold) => unknown;
  readonly #resolve: (result: unknown) => void;
  readonly #reject: (error: unknown) => void;
  #onAbort: (() => void) | null = null;

  /** Resolves with `toResult` of the local hold, or with null if `isTry` and the keys were busy; rejects with an error. */
  constructor(
    target: LockTarget,
    settings: AcquireSettings,
    isTry: boolean,
    startedAt: number,
    toResult: (localHold: LocalHold) => unknown,
    resolve: (result: unknown) => void,
    reject: (error: unknown) => void,
  ) {
    this.target = target;
    this.settings = settings;
    this.noWait = settings.waitMs === 0;
    this.isTry = isTry;
    this.startedAt = startedAt;
    this.#toResult = toResult;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Joins a local queue: from now on the wait can time out or be aborted. @throws what addEventListener of the signal throws */
  join(queue: LocalQueue): void {
    const { waitMs, signal } = this.settings;
    if (signal !== undefined) {
      this.#onAbort = () => this.queue?.withdraw(this, signal.reason);
      // many waits may share one signal, with a listener each: suppress Node's warning about a leak
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    this.queue = queue;
    if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY)
      queue.parent.engine.scheduler.schedule(this, this.startedAt + waitMs);
  }

  onDue(): void {
    this.queue?.timeOut(this);
  }

  grant(localHold: LocalHold): void {
    this.leave();
    this.#resolve(this.#toResult(localHold));
  }

  /** Settles the request with an error, or with null for a busy tryAcquire(); called once, after it has left the queue. */
  reject(error: unknown): void {
    this.leave();
    if (this.isTry && error === null) this.#resolve(null);
    else this.#reject(error);
  }

  /** Leaves the queue: from now on the wait can neither time out nor be aborted. */
  leave(): void {
    if (this.heapIndex !== -1) this.queue?.parent.engine.scheduler.cancel(this);
    this.queue = null;
    if (this.#onAbort !== null) this.settings.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = null;
  }
}
