/** Signals to the wrapper: they end a wait, and are passed on to a child. */

/** Those that mean something to a child. */
const PASSED_ON: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"];
/** Those that end us while nothing runs yet. */
const ENDING: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"];
/** A terminal sends these to its whole foreground group, so a child in our group has them already. */
const OF_TERMINAL: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT"];

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
export interface Signals {
  /** Aborted by the first signal that ends us; its reason is an InterruptedError. */
  readonly ending: AbortSignal;
  /** The work's result, or a rejection with the InterruptedError as soon as a signal ends us. */
  orInterrupted<T>(work: Promise<T>): Promise<T>;
  /** From now on signals go to the child, unless the terminal has sent them to it. */
  passTo(child: { readonly terminal: boolean; send(name: NodeJS.Signals): void }): void;
}

/** Catches from now on, until the process ends. */
export function catchSignals(): Signals {
  const ending = new AbortController();
  let target: { readonly terminal: boolean; send(name: NodeJS.Signals): void } | null = null;
  const hear = (name: NodeJS.Signals): void => {
    if (target === null) {
      if (ENDING.includes(name)) ending.abort(new InterruptedError(name));
    } else if (!target.terminal || !OF_TERMINAL.includes(name)) {
      target.send(name);
    }
  };
  for (const name of PASSED_ON) process.on(name, hear);
  const interrupted = new Promise<never>((_, reject) => {
    ending.signal.addEventListener("abort", () => reject(ending.signal.reason), { once: true });
  });
  // nobody may be waiting when the signal comes
  interrupted.catch(() => undefined);
  return {
    ending: ending.signal,
    orInterrupted: (work) => Promise.race([work, interrupted]),
    passTo(child) {
      target = child;
    },
  };
}
