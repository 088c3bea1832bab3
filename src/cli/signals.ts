/** Signals to `holdfast`: they end a wait, and are passed on to the child process. */

/** Passed on to the child process. */
const FORWARDED: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"];
/** They end `holdfast` as long as no child process runs. */
const TERMINATING: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"];
/** A terminal sends these to its complete foreground group, so a child in our group already has them. */
const FROM_TERMINAL: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT"];

/** A signal ended the command before its work was done. */
export class InterruptedError extends Error {
  readonly signal: NodeJS.Signals;
  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`);
    this.name = "InterruptedError";
    this.signal = signal;
  }
}

/** Catches the signals and decides where they go. */
export interface SignalHandler {
  /** Aborted by the first terminating signal; the reason is an InterruptedError. */
  readonly terminating: AbortSignal;
  /** Settles as `work` does, but rejects with the InterruptedError as soon as a terminating signal arrives. */
  orInterrupted<T>(work: Promise<T>): Promise<T>;
  /** From now on signals go to the child, except those that the terminal sends to it itself. */
  forwardTo(child: { readonly terminal: boolean; send(name: NodeJS.Signals): void }): void;
}

/** Catches signals from now on, until the process ends. */
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
  // without this, a signal at a moment when no orInterrupted() waits would be an unhandled rejection
  interrupted.catch(() => undefined);
  return {
    terminating: terminating.signal,
    orInterrupted: (work) => Promise.race([work, interrupted]),
    forwardTo(child) {
      target = child;
    },
  };
}
