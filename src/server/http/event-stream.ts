/**
 * Server-sent events. A slow reader is disconnected when too much data waits for it. A reader that reconnects sends the id
 * of its last event, and receives the events after it as far as the server still has them.
 */

import type { ServerResponse } from "node:http";
import { validateKey } from "../../util/keys.ts";
import type { Principal } from "../auth/access-control.ts";
import { visibleKeys } from "../auth/authorize.ts";
import { drainingError } from "../backend.ts";
import type { EventBatch, EventLog, RecordedEvent } from "../events/event-log.ts";
import type { LockService } from "../service.ts";
import { invalidField } from "./problem.ts";
import { parseQuery } from "./read-request.ts";
import type { RequestContext, Route } from "./request-context.ts";

/** The interval of the comments that keep a quiet stream open. */
const HEARTBEAT_MS = 15_000;

/** The event streams of a server. */
export interface EventStreams {
  readonly routes: readonly Route[];
  /** The number of open streams. */
  readonly count: number;
  /** Ends the streams of removed credentials, after the accounts have changed. */
  revalidatePrincipals(): void;
  /** Ends all streams. */
  close(): void;
}

export function createEventStreams(service: LockService, eventLog: EventLog): EventStreams {
  /** For each open stream, the function that ends it, and its account. */
  const principalsByEnd = new Map<() => void, Principal>();

  /** @throws RequestError LIMIT if there are too many streams, DRAINING if the server is stopping */
  function subscribe(call: RequestContext): null {
    if (service.isDraining) throw drainingError();
    const { incoming, outgoing, principal, disconnected } = call;
    const prefix = parsePrefix(parseQuery(incoming.url as string, ["prefix"]).get("prefix"));
    const [afterSequence, hasMissed] = parseLastEventId(incoming.headers["last-event-id"], service.runId);
    if (incoming.method === "HEAD") {
      sendHeaders(outgoing);
      outgoing.end();
      return null;
    }
    const write = (text: string): boolean => {
      if (outgoing.destroyed || outgoing.writableEnded) return false;
      if (outgoing.writableLength > service.limits.slowConsumerBytes) {
        outgoing.destroy();
        return false;
      }
      outgoing.write(text);
      return true;
    };
    const filter = { prefix, canSee: visibleKeys(principal), account: principal.name };
    const subscription = eventLog.subscribe(filter, (batch) => write(formatBatch(batch, service.runId)), afterSequence);
    sendHeaders(outgoing);
    // written at once, so that the reader knows that it misses nothing from now on
    write(hasMissed ? ": welcome\n\nevent: gap\ndata: {}\n\n" : ": welcome\n\n");
    const endsAt = service.clock.now() + service.limits.eventStreamMs;
    const isProgressing = trackProgress(outgoing);
    const heartbeat = service.clock.timer(() => {
      // A dead reader on a half-open connection must not keep its stream forever, so every stream ends after a while, and a
      // stream without progress at once. A living reader reconnects.
      if (service.clock.now() >= endsAt) return end();
      if (!isProgressing()) return void outgoing.destroy();
      if (write(": \n\n")) heartbeat.set(Math.min(endsAt, service.clock.now() + HEARTBEAT_MS));
    });
    heartbeat.set(Math.min(endsAt, service.clock.now() + HEARTBEAT_MS));
    const end = (): void => {
      if (!principalsByEnd.delete(end)) return;
      subscription[Symbol.dispose]();
      heartbeat.stop();
      outgoing.end();
    };
    principalsByEnd.set(end, principal);
    disconnected.addEventListener("abort", end, { once: true });
    outgoing.once("close", end);
    return null;
  }

  return {
    routes: [{ method: "GET", path: "/events", handle: subscribe }],
    get count() {
      return principalsByEnd.size;
    },
    revalidatePrincipals() {
      for (const [end, { isValid }] of [...principalsByEnd]) if (!isValid) end();
    },
    close() {
      for (const end of [...principalsByEnd.keys()]) end();
    },
  };
}

/** The function reports progress: all data has been sent, or at least some of it since the previous call. */
function trackProgress(outgoing: ServerResponse): () => boolean {
  let previous = -1;
  return () => {
    const { writableLength = 0, bytesWritten = 0 } = outgoing.socket ?? {};
    const sent = bytesWritten - writableLength;
    const isMoving = writableLength === 0 || sent > previous;
    previous = sent;
    return isMoving;
  };
}

function sendHeaders(outgoing: ServerResponse): void {
  // without x-accel-buffering a proxy (nginx) would buffer the events
  outgoing.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no" });
}

/** A prefix may be any beginning of a valid key. */
function parsePrefix(prefix = ""): string {
  if (prefix === "") return prefix;
  try {
    return validateKey(prefix, "prefix");
  } catch (error) {
    throw invalidField("prefix", "malformed", (error as TypeError).message);
  }
}

/** The sequence number to continue after (undefined: only new events), and whether events may have been missed. */
function parseLastEventId(
  header: string | string[] | undefined,
  runId: string,
): readonly [number | undefined, boolean] {
  if (header === undefined || header === "") return [undefined, false];
  const match = typeof header === "string" ? /^([a-z2-7]{1,26})-(\d{1,15})$/.exec(header) : null;
  if (match === null) {
    throw invalidField("last-event-id", "malformed", "Last-Event-ID must be the id of an event of this server");
  }
  // the events of an earlier server run are gone
  return match[1] === runId ? [Number(match[2]), false] : [0, true];
}

function formatBatch({ events, hasGap }: EventBatch, runId: string): string {
  let text = hasGap ? "event: gap\ndata: {}\n\n" : "";
  for (const event of events) text += formatEvent(event, runId);
  return text;
}

function formatEvent({ seq, token, ...event }: RecordedEvent, runId: string): string {
  const data = JSON.stringify({
    ...event,
    at: new Date(event.at).toISOString(),
    token: token === undefined ? null : String(token),
  });
  return `id: ${runId}-${seq}\nevent: ${event.kind}\ndata: ${data}\n\n`;
}
