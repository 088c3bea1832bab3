/** The only listener for process signals; installed only by Locks.closeOnSignal(). */

import { emitProcessWarning } from "../errors.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;
const CLOSE_TIMEOUT_MS = 2_000;

/** On SIGINT or SIGTERM calls `close`, waits at most 2 s for it, then raises the signal again with its default effect. */
export function closeOnSignal(close: () => Promise<void>): Disposable {
  const dispose = (): void => {
    for (const signal of SIGNALS) process.removeListener(signal, onSignal);
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    dispose();
    const raise = (): void => {
      clearTimeout(timeout);
      process.kill(process.pid, signal);
    };
    const timeout = setTimeout(raise, CLOSE_TIMEOUT_MS);
    close().then(raise, (error: unknown) => {
      emitProcessWarning(error, "HoldfastWarning");
      raise();
    });
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return { [Symbol.dispose]: dispose };
}
