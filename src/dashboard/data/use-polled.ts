/** A document of the gateway, read again and again. */

import { useEffect, useState } from "preact/hooks";
import { getJson, RequestError } from "./api.ts";
import { startPolling } from "./polling.ts";

/** What is known of the document. */
export interface Polled<T> {
  /** null: not read yet. */
  readonly value: T | null;
  /** When it was read, by performance.now(). */
  readonly readAt: number | null;
  /** Why the newest request failed. */
  readonly failure: RequestError | null;
}

export function usePolled<T>(path: string, intervalMs: number): Polled<T> {
  const [state, setState] = useState<Polled<T>>({ value: null, readAt: null, failure: null });
  useEffect(
    () =>
      startPolling(async (signal) => {
        try {
          const value = await getJson<T>(path, signal);
          if (value !== null) setState({ value, readAt: performance.now(), failure: null });
        } catch (error) {
          if (error instanceof RequestError) setState((before) => ({ ...before, failure: error }));
        }
        return intervalMs;
      }),
    [path, intervalMs],
  );
  return state;
}
