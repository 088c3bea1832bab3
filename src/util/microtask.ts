/** Work for the end of the current turn. */

const RESOLVED = Promise.resolve();

/** Runs it in a microtask. Not by queueMicrotask(), which the fake timers of a test runner replace: it would never run. */
export function runInMicrotask(run: () => void): void {
  void RESOLVED.then(run);
}
