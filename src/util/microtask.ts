/** Work for the end of the current turn. */

/** Runs it in a microtask. Not by queueMicrotask(), which the fake timers of a test runner replace: it would never run. */
export function runInMicrotask(run: () => void): void {
  void Promise.resolve().then(run);
}

/** Resolves to the value when microtasks that are scheduled now have had time for a few of their own. */
export async function resolveLater<T>(value: T): Promise<T> {
  for (let turn = 0; turn < 3; turn++) await null;
  return value;
}
