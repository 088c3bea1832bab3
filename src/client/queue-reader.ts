/**
 * Reads the queues of keys, to name the holder in errors. Errors are for people, so these lookups must not cost a lock,
 * however many waits end at once (decision 0029):
 *
 * - At most one lookup per key is in flight, and callers share it. Its result is reused for as long as the lookup took,
 *   so that a slow store spends at most half of the time on lookups of one key. A fresh lookup (`isFresh`, for the
 *   leader of an election) shares none that was sent before: the program may know already that the result of that one
 *   is outdated.
 * - At most MAX_IN_FLIGHT lookups are in flight for all keys. Only these few small requests can be sent before the
 *   releases of the claims whose entries they should still see; all others follow those releases. The renewals of a
 *   turn are sent before any lookup.
 * - Every lookup ends at its timeout, whether answered, in flight or not sent yet, and sends nothing afterwards.
 */

import type { ClaimView } from "../spi/driver.ts";
import { runInMicrotask } from "../util/microtask.ts";
import { rejectOnThrow } from "../util/timeout.ts";
import type { Engine } from "./engine.ts";
import type { Scheduler } from "./scheduler.ts";

/** Short, since the lookup delays the error of a wait that is already over. */
export const LOOKUP_TIMEOUT_MS = 500;
const MAX_IN_FLIGHT = 4;
const MAX_CLAIMS = 1_000;

/** A queue at one moment of the engine's clock, front first. */
export interface QueueSnapshot {
  readonly views: readonly ClaimView[];
  readonly readAt: number;
}

interface PendingRead {
  readonly key: string;
  /** Aborted at the timeout. */
  readonly signal: AbortSignal;
  readonly resolve: (queue: QueueSnapshot) => void;
  readonly reject: (error: unknown) => void;
}

export class QueueReader {
  readonly scheduler: Scheduler;
  readonly #engine: Engine;
  readonly #byKey = new Map<string, Promise<QueueSnapshot>>();
  readonly #unsent: PendingRead[] = [];
  #inFlight = 0;
  #isSendScheduled = false;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.scheduler = engine.scheduler;
  }

  /** For messages. */
  get storeName(): string {
    return this.#engine.driver.name;
  }

  /**
   * Reads the queue of a key; rejects if the store does not answer within LOOKUP_TIMEOUT_MS.
   * @param isFresh a lookup that was sent before this call is not shared
   */
  read(key: string, isFresh = false): Promise<QueueSnapshot> {
    const existing = this.#byKey.get(key);
    const isShared = !isFresh || this.#unsent.some((pending) => pending.key === key);
    if (existing !== undefined && isShared) return existing;
    const controller = new AbortController();
    const { signal } = controller;
    const { scheduler } = this;
    const timeout = scheduler.timer(() => controller.abort(new Error("the store did not answer in time")));
    const queue = new Promise<QueueSnapshot>((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#unsent.push({ key, signal, resolve, reject });
    });
    this.#byKey.set(key, queue);
    const forget = (): boolean => this.#byKey.get(key) === queue && this.#byKey.delete(key);
    scheduler.ref(); // the end of a wait is delayed by it
    queue
      .finally(() => {
        timeout.stop();
        scheduler.unref();
      })
      .then(({ readAt }) => {
        const now = scheduler.now();
        if (now === readAt) forget();
        else scheduler.timer(forget).set(Math.ceil(now + (now - readAt)));
      }, forget);
    timeout.set(Math.ceil(scheduler.now() + LOOKUP_TIMEOUT_MS));
    this.#scheduleSend();
    return queue;
  }

  /** Sends all lookups of a turn together at its end, after the renewals that the turn has caused. */
  #scheduleSend(): void {
    if (this.#isSendScheduled) return;
    this.#isSendScheduled = true;
    runInMicrotask(() => {
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

  /** Settles when the call is answered or has timed out, even if the driver continues with it. */
  async #callList({ key, signal, resolve, reject }: PendingRead): Promise<void> {
    const { driver, clock } = this.#engine;
    const readAt = clock.now();
    const reply = rejectOnThrow(() => driver.list({ key }, { max: MAX_CLAIMS, signal })).then(
      ({ items }) => resolve({ views: items, readAt }),
      reject,
    );
    const timeout = new Promise<void>((settle) => {
      if (signal.aborted) settle();
      else signal.addEventListener("abort", () => settle(), { once: true });
    });
    await Promise.race([reply, timeout]);
  }
}
