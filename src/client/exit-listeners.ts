/**
 * What clients do when nothing keeps the process alive any more. One listener of the process for all of them: it warns
 * of many.
 */

class ExitListeners {
  readonly #listeners = new Set<() => void>();
  readonly #onBeforeExit = (): void => {
    for (const listener of [...this.#listeners]) listener();
  };

  /** The listener may be called repeatedly: what it does may keep the process alive for a while. */
  add(listener: () => void): void {
    if (this.#listeners.size === 0) process.on("beforeExit", this.#onBeforeExit);
    this.#listeners.add(listener);
  }

  delete(listener: () => void): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size === 0) process.off("beforeExit", this.#onBeforeExit);
  }
}

export const exitListeners: ExitListeners = new ExitListeners();
