/** Listeners of the connections and pools of a library. */

/** The part of an EventEmitter that is used. */
export interface Emitter {
  on(event: string, listener: (...details: never[]) => void): unknown;
  off(event: string, listener: (...details: never[]) => void): unknown;
  listeners(event: string): readonly unknown[];
}

/** For errors that the calls report as well. */
export function ignoreError(): void {
  // reported by the calls
}

/**
 * An error event without a listener ends the process. Listeners of the user still receive it. The listener stays until
 * the client is closed, and there is one however many drivers share the client.
 */
export function ignoreErrors(emitter: Emitter): void {
  if (!emitter.listeners("error").includes(ignoreError)) emitter.on("error", ignoreError);
}

/** Calls the listener at each of these events, until the returned function is called. */
export function watchEvents(
  emitter: Pick<Emitter, "on" | "off">,
  events: readonly string[],
  listener: () => void,
): () => void {
  for (const event of events) emitter.on(event, listener);
  return () => {
    for (const event of events) emitter.off(event, listener);
  };
}
