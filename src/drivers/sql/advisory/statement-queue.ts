/** The statements of one connection, one at a time and in order: pg is to refuse more than one. */

import { runInMicrotask } from "../../../util/microtask.ts";

export class StatementQueue {
  #isBusy = false;
  readonly #waiting: (() => void)[] = [];

  /**
   * Calls `send` when all earlier statements have ended: at once if none is in progress. It calls next() when its own
   * has ended.
   */
  add(send: () => void): void {
    if (this.#isBusy) {
      this.#waiting.push(send);
      return;
    }
    this.#isBusy = true;
    send();
  }

  /** The statement in progress has ended. */
  next(): void {
    const send = this.#waiting.shift();
    if (send === undefined) this.#isBusy = false;
    else runInMicrotask(send);
  }

  /** Settles when the statements that were added before have ended. */
  whenIdle(): Promise<void> {
    if (!this.#isBusy) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.push(() => {
        resolve();
        this.next();
      });
    });
  }
}
