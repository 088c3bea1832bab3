/** A stream of events of the gateway, which begins again when it breaks. EventSource cannot send the secret of the session. */

import type { StreamMessage } from "../model/event-stream-parser.ts";
import { chooseRetryMs, EventStreamParser } from "../model/event-stream-parser.ts";
import { createUnreachable, openStream, RequestError } from "./api.ts";

/** The gateway sends a comment each 15 s: a connection without any is dead, as after the machine has slept. */
const SILENCE_MS = 40_000;

export interface EventStreamListener {
  readonly onMessage: (message: StreamMessage) => void;
  readonly onFailure: (failure: RequestError) => void;
}

/** Where a stream continues. */
export interface StreamPlace {
  /** The id of the last message; "": from the beginning. */
  lastId: string;
}

/** Reads until the signal ends it. @param place where it begins, and where it can be continued later */
export async function followStream(
  path: string,
  place: StreamPlace,
  listener: EventStreamListener,
  signal: AbortSignal,
): Promise<void> {
  let failures = 0;
  const onMessage = (message: StreamMessage): void => {
    failures = 0;
    place.lastId = message.id || place.lastId;
    listener.onMessage(message);
  };
  while (!signal.aborted) {
    try {
      await readStream(path, place.lastId, onMessage, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RequestError)) throw error;
      listener.onFailure(error);
    }
    // a stream that has ended as it should is continued, too: the gateway ends each one after a while
    failures++;
    await sleep(chooseRetryMs(failures, Math.random()), signal);
  }
}

/** Reads one response to its end. @throws RequestError */
async function readStream(
  path: string,
  lastId: string,
  onMessage: (message: StreamMessage) => void,
  signal: AbortSignal,
): Promise<void> {
  const silence = new AbortController();
  const watch = (): ReturnType<typeof setTimeout> => setTimeout(() => silence.abort(), SILENCE_MS);
  const headers = lastId === "" ? {} : { "last-event-id": lastId };
  let timer = watch();
  try {
    const { body } = await openStream(path, headers, AbortSignal.any([signal, silence.signal]));
    if (body === null) throw createUnreachable();
    const parser = new EventStreamParser();
    const reader = body.getReader();
    for (;;) {
      const chunk = await reader.read().catch(() => {
        throw createUnreachable();
      });
      clearTimeout(timer);
      timer = watch();
      if (chunk.done) return;
      for (const message of parser.push(chunk.value)) if (!signal.aborted) onMessage(message);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Ends at once with the signal. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
