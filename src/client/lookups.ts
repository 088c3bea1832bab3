/**
 * Looks at the queues of keys, to name who is in the way. People read what they find, so they may cost no lock anything,
 * however many waits end at once:
 *
 * - of one key at most one is under way, and all who ask meanwhile share it. Its answer counts for as long again as it took,
 *   so that a store that is slow is asked about a key for at most half of the time;
 * - of all keys at most MOST_AT_ONCE are under way: so many small requests may be sent before the releases of the very
 *   places they are to find, all others behind them. The renewals of a turn are sent before any of them;
 * - each ends when its patience does, answered, under way or not sent yet, and asks nothing more from then on.
 */

import type { ClaimView } from "../spi/driver.ts";
import type { Engine } from "./engine.ts";
import { attempt } from "./releases.ts";
import { timed } from "./timed.ts";

/** A wait that is over is not made much longer by asking why. */
export const PATIENCE_MS = 500;
const MOST_AT_ONCE = 4;
const MOST_LOOKED_AT = 1_000;

/** A queue as it was at that moment of the engine's clock, front first. */
export interface Queue {
  readonly views: readonly ClaimView[];
  readonly seenAt: number;
}

interface Lookup {
  readonly key: string;
  /** Aborted when its patience is over. */
  readonly signal: AbortSignal;
  readonly resolve: (queue: Queue) => void;
  readonly reject: (error: unknown) => void;
}

export class Lookups {
  readonly #engine: Engine;
  readonly #byKey = new Map<string, Promise<Queue>>();
  readonly #unsent: Lookup[] = [];
  #underWay = 0;
  #isSending = false;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** The queue of a key; rejects if that cannot be found out within PATIENCE_MS. */
  queueOf(key: string): Promise<Queue> {
    const known = this.#byKey.get(key);
    if (known !== undefined) return known;
    const engine = this.#engine;
    const over = new AbortController();
    const { signal } = over;
    const end = timed(() => over.abort(new Error("the store did not answer in time")));
    const queue = new Promise<Queue>((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#unsent.push({ key, signal, resolve, reject });
    });
    this.#byKey.set(key, queue);
    const forget = (): boolean => this.#byKey.get(key) === queue && this.#byKey.delete(key);
    queue
      .finally(() => engine.unset(end))
      .then(({ seenAt }) => {
        const now = engine.clock.now();
        if (now === seenAt) forget();
        else engine.set(timed(forget), now + (now - seenAt));
      }, forget);
    engine.set(end, engine.clock.now() + PATIENCE_MS);
    this.#sendSoon();
    return queue;
  }

  /** Once for all looks of a turn, when all else that it brings to be renewed is known. */
  #sendSoon(): void {
    if (this.#isSending) return;
    this.#isSending = true;
    queueMicrotask(() => {
      this.#isSending = false;
      this.#engine.sendRenewals();
      this.#send();
    });
  }

  #send(): void {
    while (this.#underWay < MOST_AT_ONCE) {
      const lookup = this.#unsent.shift();
      if (lookup === undefined) return;
      if (lookup.signal.aborted) continue;
      this.#underWay++;
      void this.#ask(lookup).then(() => this.#settled());
    }
  }

  #settled(): void {
    this.#underWay--;
    this.#send();
  }

  /** Settles when its turn is over: answered, or not in time, however long the driver goes on with it. */
  async #ask({ key, signal, resolve, reject }: Lookup): Promise<void> {
    const { driver, clock } = this.#engine;
    const seenAt = clock.now();
    const asked = attempt(() => driver.list({ key }, MOST_LOOKED_AT, undefined, signal)).then(
      (views) => resolve({ views, seenAt }),
      reject,
    );
    const late = new Promise<void>((settle) => {
      if (signal.aborted) settle();
      else signal.addEventListener("abort", () => settle(), { once: true });
    });
    await Promise.race([asked, late]);
  }
}
