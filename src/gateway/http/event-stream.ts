/**
 * Server-sent events. A slow reader is disconnected when too much data waits for it. A reader that reconnects sends the id
 * of its last event, and receives the events after it as far as the server still has them.
 */

import type { ServerResponse } from "node:http";
import { stream } from "hono/streaming";
import type { StreamingApi } from "hono/utils/stream";
import type { Principal } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import { MAX_UNREAD_BYTES } from "../../server/connection/connection.ts";
import type { EventBatch, EventLog, RecordedEvent } from "../../server/events/event-log.ts";
import { drainingError } from "../../server/request-error.ts";
import { validateKey } from "../../util/keys.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { parseQuery } from "./context.ts";
import { invalidField } from "./problem.ts";

/** The interval of the comments that keep a quiet stream open. */
const HEARTBEAT_MS = 15_000;
/** How long a stream lasts: the reader of a half-open connection must not keep its stream for ever. */
const MAX_STREAM_MS = 3_600_000;

/** The event streams of a server. */
export class EventStreams {
  readonly #service: GatewayService;
  readonly #eventLog: EventLog;
  /** For each open stream, the function that ends it, and its account. */
  readonly #principalsByEnd = new Map<() => void, Principal>();

  constructor(service: GatewayService, eventLog: EventLog) {
    this.#service = service;
    this.#eventLog = eventLog;
  }

  /** The number of open streams. */
  get count(): number {
    return this.#principalsByEnd.size;
  }

  /** @throws RequestError LIMIT if there are too many streams, DRAINING if the server is stopping */
  open(c: HttpContext): Response {
    const { isDraining, runId } = this.#service;
    if (isDraining) throw drainingError();
    const { incoming, outgoing } = c.env;
    const principal = c.get("principal");
    const prefix = parsePrefix(parseQuery(c, ["prefix"]).get("prefix"));
    const [afterSequence, hasMissed] = parseLastEventId(incoming.headers["last-event-id"], runId);
    c.header("content-type", "text/event-stream; charset=utf-8");
    // without it a proxy (nginx) would buffer the events
    c.header("x-accel-buffering", "no");
    if (c.req.method === "HEAD") return c.body(null);
    const writer = new BoundedWriter(outgoing, MAX_UNREAD_BYTES);
    const filter = { prefix, canSee: visibleKeys(principal), account: principal.name };
    const subscription = this.#eventLog.subscribe(
      filter,
      (batch) => writer.write(formatBatch(batch, runId)),
      afterSequence,
    );
    return stream(c, async (output) => {
      writer.output = output;
      // written at once, so that the reader knows that it misses nothing from now on
      writer.write(hasMissed ? ": welcome\n\nevent: gap\ndata: {}\n\n" : ": welcome\n\n");
      await this.#waitForEnd(principal, writer, outgoing, c.get("disconnected"));
      subscription[Symbol.dispose]();
    });
  }

  /** Ends the streams of removed credentials, after the accounts have changed. */
  revalidatePrincipals(): void {
    for (const [end, { isValid }] of [...this.#principalsByEnd]) if (!isValid) end();
  }

  /** Ends all streams. */
  close(): void {
    for (const end of [...this.#principalsByEnd.keys()]) end();
  }

  /**
   * Settles when the stream must end. A dead reader on a half-open connection must not keep its stream forever, so every
   * stream ends after a while, and a stream without progress at once. A living reader reconnects.
   */
  async #waitForEnd(
    principal: Principal,
    writer: BoundedWriter,
    outgoing: ServerResponse,
    disconnected: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#service;
    const endsAt = clock.now() + MAX_STREAM_MS;
    const isProgressing = trackProgress(outgoing);
    const nextHeartbeat = (): number => Math.min(endsAt, clock.now() + HEARTBEAT_MS);
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const heartbeat = clock.timer(() => {
      if (clock.now() >= endsAt) return end();
      if (!isProgressing()) return void outgoing.destroy();
      if (writer.write(": \n\n")) heartbeat.set(nextHeartbeat());
    });
    heartbeat.set(nextHeartbeat());
    this.#principalsByEnd.set(end, principal);
    disconnected.addEventListener("abort", end, { once: true });
    outgoing.once("close", end);
    await ended;
    this.#principalsByEnd.delete(end);
    heartbeat.stop();
  }
}

/** Writes to a stream, and disconnects a reader for which too much data waits. */
class BoundedWriter {
  /** Set as soon as there is one: writes before it are lost. */
  output: StreamingApi | null = null;
  readonly #outgoing: ServerResponse;
  readonly #maxUnsentBytes: number;
  /** What has been written, but not yet passed on to `outgoing`. */
  #queuedBytes = 0;

  constructor(outgoing: ServerResponse, maxUnsentBytes: number) {
    this.#outgoing = outgoing;
    this.#maxUnsentBytes = maxUnsentBytes;
  }

  /** False: the stream has ended. */
  write(text: string): boolean {
    if (this.output === null || this.output.closed || this.#outgoing.destroyed) return false;
    if (this.#queuedBytes + this.#outgoing.writableLength > this.#maxUnsentBytes) {
      this.#outgoing.destroy();
      return false;
    }
    const bytes = Buffer.byteLength(text);
    this.#queuedBytes += bytes;
    void this.output.write(text).then(() => {
      this.#queuedBytes -= bytes;
    });
    return true;
  }
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
