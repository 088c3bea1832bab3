/** Waits for a connection: callers wait briefly while no server is connected, then fail. */

import type { Clock, Timer } from "../../../util/clock.ts";
import { ConnectionLossError } from "./errors.ts";

/** Another server is usually found within this time; after it callers should get an error that they can handle. */
const CONNECTION_WAIT_MS = 1_000;

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

export class ConnectionWait {
  readonly #clock: Clock;
  readonly #getFailure: () => Error | null;
  readonly #timer: Timer;
  #waiters: Waiter[] = [];
  #waitUntil = 0;
  #isConnected = false;

  /** getFailure: the error of the last attempt to connect. */
  constructor(clock: Clock, getFailure: () => Error | null) {
    this.#clock = clock;
    this.#getFailure = getFailure;
    this.#timer = clock.timer(() => this.#rejectAll());
  }

  /** Settles when a server is connected. @throws ConnectionLossError if none has been connected for a second */
  wait(): Promise<void> {
    if (this.#isConnected) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      if (this.#clock.now() >= this.#waitUntil) this.#rejectAll();
    });
  }

  onConnected(): void {
    this.#isConnected = true;
    this.#timer.set(null);
    for (const { resolve } of this.#waiters.splice(0)) resolve();
  }

  onDisconnected(): void {
    this.#isConnected = false;
    this.#waitUntil = this.#clock.now() + CONNECTION_WAIT_MS;
    this.#timer.set(this.#waitUntil);
  }

  onClosed(): void {
    this.#isConnected = false;
    this.#waitUntil = 0;
    this.#timer.stop();
    this.#rejectAll();
  }

  #rejectAll(): void {
    const failure = this.#getFailure();
    const message = `ZooKeeper: no server is connected${failure === null ? "" : `: ${failure.message}`}`;
    const error = new ConnectionLossError(false, message, failure ?? undefined);
    for (const { reject } of this.#waiters.splice(0)) reject(error);
  }
}
