/** Signals to the wrapper: they end a wait, and are passed on to a child. */

/** Those that mean something to a child. */
const FORWARDED: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"];
/** Those that end us while nothing runs yet. */
const TERMINATING: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"];
/** A terminal sends these to its whole foreground group, so a child in our group has them already. */
const FROM_TERMINAL: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT"];

/** A signal ended the command before it had done its work. */
export class InterruptedError extends Error {
  readonly signal: NodeJS.Signals;
  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`);
    this.name = "InterruptedError";
    this.signal = signal;
  }
}

/** What has been caught, and where it goes. */
export interface SignalHandler {
  /** Aborted by the first signal that ends us; its reason is an InterruptedError. */
  readonly terminating: AbortSignal;
  /** The work's result, or a rejection with the InterruptedError as soon as a signal ends us. */
  orInterrupted<T>(work: Promise<T>): Promise<T>;
  /** From now on signals go to the child, unless the terminal has sent them to it. */
  forwardTo(child: { readonly terminal: boolean; send(name: NodeJS.Signals): void }): void;
}

/** Catches from now on, until the process ends. */
export function catchSignals(): SignalHandler {
  const terminating = new AbortController();
  let target: { readonly terminal: boolean; send(name: NodeJS.Signals): void } | null = null;
  const onSignal = (name: NodeJS.Signals): void => {
    if (target === null) {
      if (TERMINATING.includes(name)) terminating.abort(new InterruptedError(name));
    } else if (!target.terminal || !FROM_TERMINAL.includes(name)) {
      target.send(name);
    }
  };
  for (const name of FORWARDED) process.on(name, onSignal);
  const interrupted = new Promise<never>((_, reject) => {
    terminating.signal.addEventListener("abort", () => reject(terminating.signal.reason), { once: true });
  });
  // nobody may be waiting when the signal comes
  interrupted.catch(() => undefined);
  return {
    terminating: terminating.signal,
    orInterrupted: (work) => Promise.race([work, interrupted]),
    forwardTo(child) {
      target = child;
    },
  };
}
