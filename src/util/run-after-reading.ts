// The imported setImmediate(): test runners replace the global one.
import { setImmediate } from "node:timers";

/** Runs it once the sockets have been read of what has come until now. */
export function runAfterReading(run: () => void): void {
  setImmediate(run);
}
