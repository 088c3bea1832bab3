/** Whether a server can be reached: who asks while none is connected waits a moment for another, and no longer. */

import type { Clock, Timer } from "../../../clock.ts";
import { ConnectionLossError } from "./errors.ts";

/** Another server is mostly found within this; who was told by then that there is none can do something about it. */
const HOLD_MS = 1_000;

interface Waiting {
  resolve(): void;
  reject(error: Error): void;
}

export class Reach {
  readonly #clock: Clock;
  readonly #why: () => Error | null;
  readonly #timer: Timer;
  #waiting: Waiting[] = [];
  #heldUntil = 0;
  #isUp = false;

  /** why: what ended the last attempt to connect. */
  constructor(clock: Clock, why: () => Error | null) {
    this.#clock = clock;
    this.#why = why;
    this.#timer = clock.timer(() => this.#end());
  }

  /** Settles when a server is connected. @throws ConnectionLossError if none has been for a second */
  wait(): Promise<void> {
    if (this.#isUp) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (this.#clock.now() >= this.#heldUntil) this.#end();
    });
  }

  up(): void {
    this.#isUp = true;
    this.#timer.set(null);
    for (const { resolve } of this.#waiting.splice(0)) resolve();
  }

  down(): void {
    this.#isUp = false;
    this.#heldUntil = this.#clock.now() + HOLD_MS;
    this.#timer.set(this.#heldUntil);
  }

  over(): void {
    this.#isUp = false;
    this.#heldUntil = 0;
    this.#timer.stop();
    this.#end();
  }

  #end(): void {
    const why = this.#why();
    const message = `ZooKeeper: no server is connected${why === null ? "" : `: ${why.message}`}`;
    const error = new ConnectionLossError(false, message, why ?? undefined);
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }
}
