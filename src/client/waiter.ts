/** One local request while it waits: for the store, or behind others of this client. */

import { setMaxListeners } from "node:events";
import type { LocalHold } from "./local-hold.ts";
import type { LocalQueue } from "./local-queue.ts";
import type { LockTarget } from "./lock-target.ts";
import type { AcquireSettings } from "./options.ts";
import type { ScheduledTask } from "./scheduled-task.ts";

export class Waiter implements ScheduledTask {
  previous: Waiter | null = null;
  next: Waiter | null = null;
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  /** Asked once: not granted at once means busy. */
  readonly noWait: boolean;
  /** Nobody wants to know why it was busy. */
  readonly isTry: boolean;
  readonly startedAt: number;
  /** Where it stands; null when it is settled. */
  queue: LocalQueue | null = null;
  // the end of its wait
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;
  readonly #toResult: (localHold: LocalHold) => unknown;
  readonly #resolve: (given: unknown) => void;
  readonly #reject: (error: unknown) => void;
  #onAbort: (() => void) | null = null;

  /** Settles with what `toResult` makes of a tenure, with null if `isTry` and the keys were not free, or with an error. */
  constructor(
    target: LockTarget,
    settings: AcquireSettings,
    isTry: boolean,
    startedAt: number,
    toResult: (localHold: LocalHold) => unknown,
    resolve: (given: unknown) => void,
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

  /** It comes to stand in this lane: from now on it can time out or be aborted. @throws what the signal throws */
  join(queue: LocalQueue): void {
    const { waitMs, signal } = this.settings;
    if (signal !== undefined) {
      this.#onAbort = () => this.queue?.withdraw(this, signal.reason);
      // one signal may end a thousand waits at once: a listener each is meant, and no leak
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    this.queue = queue;
    if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY) queue.parent.engine.schedule(this, this.startedAt + waitMs);
  }

  onDue(): void {
    this.queue?.timeOut(this);
  }

  grant(localHold: LocalHold): void {
    this.leave();
    this.#resolve(this.#toResult(localHold));
  }

  /** Once, when it has left its lane. */
  reject(error: unknown): void {
    this.leave();
    if (this.isTry && error === null) this.#resolve(null);
    else this.#reject(error);
  }

  /** It stands in no lane any more: nothing can time it out or abort it. */
  leave(): void {
    if (this.heapIndex !== -1) this.queue?.parent.engine.cancel(this);
    this.queue = null;
    if (this.#onAbort !== null) this.settings.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = null;
  }
}
