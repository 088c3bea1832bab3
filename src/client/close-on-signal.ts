/** The one place that hears of process signals, and only if asked to. */

import { warnOf } from "../errors.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;
const PATIENCE_MS = 2_000;

/** On SIGINT and SIGTERM closes, waits at most 2 s for it, and raises the signal again with its usual effect. */
export function closeOnSignal(close: () => Promise<void>): Disposable {
  const dispose = (): void => {
    for (const signal of SIGNALS) process.removeListener(signal, heard);
  };
  const heard = (signal: NodeJS.Signals): void => {
    dispose();
    const raise = (): void => {
      clearTimeout(late);
      process.kill(process.pid, signal);
    };
    const late = setTimeout(raise, PATIENCE_MS);
    close().then(raise, (error: unknown) => {
      warnOf(error, "HoldfastWarning");
      raise();
    });
  };
  for (const signal of SIGNALS) process.on(signal, heard);
  return { [Symbol.dispose]: dispose };
}
