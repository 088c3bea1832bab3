/**
 * Looks at the queues of keys, to name who is in the way. People read what they find, so they may cost no lock anything,
 * however many waits end at once:
 *
 * - of one key at most one is under way, and all who ask meanwhile share it. Its answer counts for as long again as it took,
 *   so that a store that is slow is asked about a key for at most half of the time;
 * - of all keys at most MAX_IN_FLIGHT are under way: so many small requests may be sent before the releases of the very
 *   places they are to find, all others behind them. The renewals of a turn are sent before any of them;
 * - each ends when its patience does, answered, under way or not sent yet, and asks nothing more from then on.
 */

import type { ClaimView } from "../spi/driver.ts";
import type { Engine } from "./engine.ts";
import { callDriver } from "./release-queue.ts";
import { createTask } from "./scheduled-task.ts";

/** A wait that is over is not made much longer by asking why. */
export const LOOKUP_TIMEOUT_MS = 500;
const MAX_IN_FLIGHT = 4;
const MAX_CLAIMS = 1_000;

/** A queue as it was at that moment of the engine's clock, front first. */
export interface QueueSnapshot {
  readonly views: readonly ClaimView[];
  readonly readAt: number;
}

interface PendingRead {
  readonly key: string;
  /** Aborted when its patience is over. */
  readonly signal: AbortSignal;
  readonly resolve: (queue: QueueSnapshot) => void;
  readonly reject: (error: unknown) => void;
}

export class QueueReader {
  readonly #engine: Engine;
  readonly #byKey = new Map<string, Promise<QueueSnapshot>>();
  readonly #unsent: PendingRead[] = [];
  #inFlight = 0;
  #isSendScheduled = false;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** The queue of a key; rejects if that cannot be found out within LOOKUP_TIMEOUT_MS. */
  read(key: string): Promise<QueueSnapshot> {
    const existing = this.#byKey.get(key);
    if (existing !== undefined) return existing;
    const engine = this.#engine;
    const controller = new AbortController();
    const { signal } = controller;
    const timeoutTask = createTask(() => controller.abort(new Error("the store did not answer in time")));
    const queue = new Promise<QueueSnapshot>((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#unsent.push({ key, signal, resolve, reject });
    });
    this.#byKey.set(key, queue);
    const forget = (): boolean => this.#byKey.get(key) === queue && this.#byKey.delete(key);
    queue
      .finally(() => engine.cancel(timeoutTask))
      .then(({ readAt }) => {
        const now = engine.clock.now();
        if (now === readAt) forget();
        else engine.schedule(createTask(forget), now + (now - readAt));
      }, forget);
    engine.schedule(timeoutTask, engine.clock.now() + LOOKUP_TIMEOUT_MS);
    this.#scheduleSend();
    return queue;
  }

  /** Once for all looks of a turn, when all else that it brings to be renewed is known. */
  #scheduleSend(): void {
    if (this.#isSendScheduled) return;
    this.#isSendScheduled = true;
    queueMicrotask(() => {
      this.#isSendScheduled = false;
      this.#engine.flushRenewals();
      this.#send();
    });
  }

  #send(): void {
    while (this.#inFlight < MAX_IN_FLIGHT) {
      const pendingRead = this.#unsent.shift();
      if (pendingRead === undefined) return;
      if (pendingRead.signal.aborted) continue;
      this.#inFlight++;
      void this.#callList(pendingRead).then(() => this.#onSettled());
    }
  }

  #onSettled(): void {
    this.#inFlight--;
    this.#send();
  }

  /** Settles when its turn is over: answered, or not in time, however long the driver goes on with it. */
  async #callList({ key, signal, resolve, reject }: PendingRead): Promise<void> {
    const { driver, clock } = this.#engine;
    const readAt = clock.now();
    const reply = callDriver(() => driver.list({ key }, MAX_CLAIMS, undefined, signal)).then(
      (views) => resolve({ views, readAt }),
      reject,
    );
    const timeout = new Promise<void>((settle) => {
      if (signal.aborted) settle();
      else signal.addEventListener("abort", () => settle(), { once: true });
    });
    await Promise.race([reply, timeout]);
  }
}
