/**
 * The only listener for process signals; installed only by closeOnSignal(). All clients of the process share it: the signal
 * is raised again once, when all of them are closed. Raised earlier, it would end the process while others still release, or
 * call a handler of the program a second time.
 */

import { emitProcessWarning } from "../errors.ts";
import { locksRule, requireValid } from "../util/validate.ts";
import type { Locks } from "./locks.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;
const CLOSE_TIMEOUT_MS = 2_000;

/** One for each call of closeOnSignal(). */
const closers = new Set<{ readonly close: () => Promise<void> }>();

/**
 * On SIGINT or SIGTERM closes the locks, waits at most 2 s for that and for the locks of other calls, then raises the signal again,
 * so that it has its default effect. Where the program has a handler of its own, that handler decides about the end of the process.
 * The Disposable removes the signal handlers. @throws TypeError if the argument is no Locks
 */
export function closeOnSignal(locks: Locks): Disposable {
  requireValid(locks, "locks", locksRule);
  const closer = { close: () => locks.close() };
  // in front of all others: it sees those that a signal removes (`once`)
  if (closers.size === 0) for (const signal of SIGNALS) process.prependListener(signal, onSignal);
  closers.add(closer);
  return {
    [Symbol.dispose]() {
      closers.delete(closer);
      if (closers.size === 0) removeListeners();
    },
  };
}

function removeListeners(): void {
  for (const signal of SIGNALS) process.removeListener(signal, onSignal);
}

function onSignal(signal: NodeJS.Signals): void {
  // a second one has its default effect, if the program has no handler of its own
  removeListeners();
  const isHandled = process.listenerCount(signal) > 0;
  const closing = [...closers].map(({ close }) =>
    close().catch((error: unknown) => emitProcessWarning(error, "HoldfastWarning")),
  );
  closers.clear();
  let isRaised = false;
  const raise = (): void => {
    if (isRaised) return;
    isRaised = true;
    clearTimeout(timeout);
    // a handler of the program has had this signal: a second one would mean "at once" to it
    if (isHandled) return;
    removeListeners(); // of a client that was opened meanwhile
    process.kill(process.pid, signal);
  };
  const timeout = setTimeout(raise, CLOSE_TIMEOUT_MS);
  void Promise.all(closing).then(raise);
}
