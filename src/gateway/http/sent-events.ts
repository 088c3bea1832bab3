/**
 * Streams of server-sent events. A slow reader is disconnected when too much data waits for it. A dead reader on a
 * half-open connection must not keep its stream for ever, so every stream ends after a while, and a stream without
 * progress at once. A living reader reconnects.
 */

import type { ServerResponse } from "node:http";
import { stream } from "hono/streaming";
import type { StreamingApi } from "hono/utils/stream";
import type { Principal } from "../../auth/access-control.ts";
import { MAX_UNREAD_BYTES } from "../../server/connection/connection.ts";
import { RequestError } from "../../server/request-error.ts";
import type { Clock } from "../../util/clock.ts";
import type { HttpContext } from "./context.ts";

/** The interval of the comments that keep a quiet stream open. */
const HEARTBEAT_MS = 15_000;
/** Streams that are written as fast as they are read. */
const MAX_PACED_PER_ACCOUNT = 50;
/** How long a stream lasts. */
const MAX_STREAM_MS = 3_600_000;

/** Writes to a reader. False: the stream has ended. */
export type StreamWriter = (text: string) => boolean;

/** Open streams. */
export class SentEvents {
  readonly #clock: Clock;
  /** For each open stream, the function that ends it, and its account. */
  readonly #principalsByEnd = new Map<() => void, Principal>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The number of open streams. */
  get count(): number {
    return this.#principalsByEnd.size;
  }

  /**
   * Opens a stream. `subscribe` begins to write events, and may throw an error that answers the request; `welcome` is
   * written before them, at once, so that the reader knows that it misses nothing from now on.
   */
  open(
    c: HttpContext,
    principal: Principal,
    welcome: string,
    subscribe: (write: StreamWriter) => Disposable,
  ): Response {
    prepareStream(c);
    if (c.req.method === "HEAD") return c.body(null);
    const { outgoing } = c.env;
    const writer = new BoundedWriter(outgoing, MAX_UNREAD_BYTES);
    const subscription = subscribe((text) => writer.write(text));
    return stream(c, async (output) => {
      writer.output = output;
      writer.write(welcome);
      await this.#waitForEnd(principal, writer, outgoing, c.get("disconnected"));
      subscription[Symbol.dispose]();
    });
  }

  /**
   * Opens a stream that is written as fast as it is read. `next` gives what comes next, "" if there is nothing yet;
   * `subscribe` calls its argument when there may be more.
   * @throws RequestError LIMIT if the account has too many streams
   */
  openPaced(
    c: HttpContext,
    principal: Principal,
    next: () => string,
    subscribe: (notify: () => void) => Disposable,
  ): Response {
    const own = [...this.#principalsByEnd.values()].filter(({ name }) => name === principal.name);
    if (own.length >= MAX_PACED_PER_ACCOUNT)
      throw new RequestError("LIMIT", `at most ${MAX_PACED_PER_ACCOUNT} streams of one account`);
    prepareStream(c);
    if (c.req.method === "HEAD") return c.body(null);
    const { outgoing } = c.env;
    const writer = new BoundedWriter(outgoing, MAX_UNREAD_BYTES);
    return stream(c, async (output) => {
      writer.output = output;
      let isOpen = true;
      let wake = (): void => undefined;
      const subscription = subscribe(() => wake());
      const writeAll = async (): Promise<void> => {
        while (isOpen && !output.closed && !outgoing.destroyed) {
          const text = next();
          // settles when the reader has taken it
          if (text !== "") await output.write(text);
          else
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
        }
      };
      void writeAll();
      await this.#waitForEnd(principal, writer, outgoing, c.get("disconnected"));
      isOpen = false;
      wake();
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

  /** Settles when the stream must end. */
  async #waitForEnd(
    principal: Principal,
    writer: BoundedWriter,
    outgoing: ServerResponse,
    disconnected: AbortSignal,
  ): Promise<void> {
    const clock = this.#clock;
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

function prepareStream(c: HttpContext): void {
  c.header("content-type", "text/event-stream; charset=utf-8");
  // without it a proxy (nginx) would buffer the events
  c.header("x-accel-buffering", "no");
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
