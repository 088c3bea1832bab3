/**
 * The only listener for process signals; installed only by closeOnSignal(). All clients of the process share it: the
 * signal is raised again once, when all of them are closed. Raised earlier, it would end the process while others still
 * release, or call a handler of the program a second time.
 */

import { emitProcessWarning } from "../errors.ts";
import { locksRule, requireValid } from "../util/validate.ts";
import type { Locks } from "./locks.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;
const CLOSE_TIMEOUT_MS = 2_000;

/** One for each call of closeOnSignal(). */
const closers = new Set<{ readonly close: () => Promise<void> }>();

/** Raises the signal that locks are being closed for; null if none are. */
let raise: (() => void) | null = null;

/**
 * On SIGINT or SIGTERM closes the locks, waits at most 2 s for that and for the locks of other calls, then raises the
 * signal again, so that it has its default effect. Where the program has a handler of its own, that handler decides
 * about the end of the process. The Disposable removes the signal handlers. @throws TypeError if the argument is no
 * Locks
 */
export function closeOnSignal(locks: Locks): Disposable {
  requireValid(locks, "locks", locksRule);
  const closer = { close: () => locks.close() };
  if (closers.size === 0 && raise === null) for (const signal of SIGNALS) process.prependListener(signal, onSignal);
  closers.add(closer);
  return {
    [Symbol.dispose]() {
      closers.delete(closer);
      if (closers.size === 0 && raise === null) removeListeners();
    },
  };
}

function removeListeners(): void {
  for (const signal of SIGNALS) process.removeListener(signal, onSignal);
}

/**
 * The first of all listeners: it sees those that a signal removes (`once`). It stays until the locks are closed: a
 * library that ends the process if it finds no other listener would end it before the releases are sent.
 */
function onSignal(signal: NodeJS.Signals): void {
  const isHandled = hasHandler(signal);
  // a second one has its default effect, if the program has no handler of its own
  if (raise !== null && !isHandled) return raise();
  if (raise !== null && closers.size === 0) return;
  const closing = [...closers].map(({ close }) =>
    close().catch((error: unknown) => emitProcessWarning(error, "HoldfastWarning")),
  );
  closers.clear();
  const finish = (): void => {
    clearTimeout(timeout);
    if (raise !== finish) return;
    raise = null;
    // those of clients that were opened meanwhile
    if (!isHandled || closers.size === 0) removeListeners();
    // a handler of the program has had this signal: a second one would mean "at once" to it
    if (!isHandled) process.kill(process.pid, signal);
  };
  raise = finish;
  const timeout = setTimeout(finish, CLOSE_TIMEOUT_MS);
  void Promise.all(closing).then(finish);
}

/**
 * Whether the program has one. A listener of signal-exit, which many libraries use to clean up, ends the process if it
 * is alone.
 */
function hasHandler(signal: NodeJS.Signals): boolean {
  const emitters = [
    Reflect.get(globalThis, Symbol.for("signal-exit emitter")),
    // before its version 4
    Reflect.get(process, "__signal_exit_emitter__"),
  ] as ({ readonly count: number } | undefined)[];
  const cleaners = emitters.reduce((sum, emitter) => sum + (emitter?.count ?? 0), 0);
  return process.listenerCount(signal) > 1 + cleaners;
}
