/**
 * Probes show that pushes arrive: the driver publishes a message of its own by the way of the calls, and it comes back by the way of
 * the pushes. A subscription without an error shows nothing: it may be on another server than the calls, or behind a pooler that
 * accepts it and delivers nothing, and a half-open connection raises no event.
 */

/** Milliseconds that an attempt to subscribe, or a probe, may take. */
export const ATTEMPT_TIMEOUT_MS = 2_000;
/** Milliseconds without a message after which the way is probed, if a claim waits. */
export const PROBE_AFTER_MS = 5_000;
/** The longest pause between attempts to subscribe, in milliseconds. */
export const MAX_BACKOFF_MS = 1_000;

/** Every probe begins with it, and no push does. Alone it is a probe whose arrival does not matter: it only ends a silence. */
export const SILENCE_PROBE = "?";

/** The probes of one channel. */
export class PushProbe {
  #count = 0;
  #onProbe: (probe: string) => void = () => undefined;

  /** The next probe, and its arrival. No earlier one is waited for any more. */
  expect(): { readonly message: string; readonly arrival: Promise<void> } {
    const message = `${SILENCE_PROBE}${++this.#count}`;
    const arrival = new Promise<void>((resolve) => {
      this.#onProbe = (probe) => {
        if (probe === message) resolve();
      };
    });
    return { message, arrival };
  }

  /** Whether the message that has arrived is a probe, not a push. */
  onMessage(message: string): boolean {
    if (!message.startsWith(SILENCE_PROBE)) return false;
    this.#onProbe(message);
    return true;
  }
}
