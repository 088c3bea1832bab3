/**
 * What happens, as it happens: server-sent events. A reader that does not read is cut when too much waits for it; one
 * that comes back says what it had last, and has what it missed as far as it is still known.
 */

import type { ServerResponse } from "node:http";
import { checkedKey } from "../../keys.ts";
import type { Principal } from "../access.ts";
import { goingAway } from "../backend.ts";
import type { Hub } from "../hub.ts";
import type { Batch, Record, RecordedEvent } from "../record.ts";
import type { Call, Route } from "./call.ts";
import { readQuery } from "./fields.ts";
import { invalid } from "./problem.ts";

/** How often a quiet stream says that it lives. */
const PULSE_MS = 15_000;

/** Event streams of a server. */
export interface Streams {
  readonly routes: readonly Route[];
  /** How many are open. */
  readonly size: number;
  /** The accounts have changed: streams of a credential that is gone end. */
  reexamine(): void;
  /** Ends them all. */
  close(): void;
}

export function eventStreams(hub: Hub, record: Record): Streams {
  /** How each is ended, and whose it is. */
  const open = new Map<() => void, Principal>();

  /** @throws Refusal LIMIT when there are too many, DRAINING when the server goes */
  function follow(call: Call): null {
    if (hub.draining) throw goingAway();
    const { incoming, outgoing, principal, gone } = call;
    const prefix = prefixFrom(readQuery(incoming.url as string, ["prefix"]).get("prefix"));
    const [after, missed] = lastSeen(incoming.headers["last-event-id"], hub.start);
    if (incoming.method === "HEAD") {
      head(outgoing);
      outgoing.end();
      return null;
    }
    const may = (key: string): boolean => principal.may("inspect", key);
    const write = (text: string): boolean => {
      if (outgoing.destroyed || outgoing.writableEnded) return false;
      if (outgoing.writableLength > hub.limits.unreadBytes) {
        outgoing.destroy();
        return false;
      }
      outgoing.write(text);
      return true;
    };
    const filter = { prefix, may, by: principal.name };
    const following = record.subscribe(filter, (batch) => write(textOf(batch, hub.start)), after);
    head(outgoing);
    // at once, so that the reader knows that it missed nothing from here on
    write(missed ? ": welcome\n\nevent: gap\ndata: {}\n\n" : ": welcome\n\n");
    const over = hub.clock.now() + hub.limits.streamMs;
    const moving = progress(outgoing);
    const pulse = hub.clock.timer(() => {
      // a reader that is gone without a word, or reads no more, is not kept for ever; one that is there comes back
      if (hub.clock.now() >= over) return end();
      if (!moving()) return void outgoing.destroy();
      if (write(": \n\n")) pulse.set(Math.min(over, hub.clock.now() + PULSE_MS));
    });
    pulse.set(Math.min(over, hub.clock.now() + PULSE_MS));
    const end = (): void => {
      if (!open.delete(end)) return;
      following[Symbol.dispose]();
      pulse.stop();
      outgoing.end();
    };
    open.set(end, principal);
    gone.addEventListener("abort", end, { once: true });
    outgoing.once("close", end);
    return null;
  }

  return {
    routes: [{ method: "GET", path: "/events", handle: follow }],
    get size() {
      return open.size;
    },
    reexamine() {
      for (const [end, { valid }] of [...open]) if (!valid) end();
    },
    close() {
      for (const end of [...open.keys()]) end();
    },
  };
}

/** Says whether all has left that was written, or at least some of it since it was asked last. */
function progress(outgoing: ServerResponse): () => boolean {
  let before = -1;
  return () => {
    const { writableLength = 0, bytesWritten = 0 } = outgoing.socket ?? {};
    const left = bytesWritten - writableLength;
    const moves = writableLength === 0 || left > before;
    before = left;
    return moves;
  };
}

function head(outgoing: ServerResponse): void {
  // a proxy that buffers would hold every event back
  outgoing.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no" });
}

/** Any beginning of a key. */
function prefixFrom(prefix = ""): string {
  if (prefix === "") return prefix;
  try {
    return checkedKey(prefix, "prefix");
  } catch (error) {
    throw invalid("prefix", "malformed", (error as TypeError).message);
  }
}

/** After which event to go on, and whether there may have been others before; undefined: from now on. */
function lastSeen(header: string | string[] | undefined, start: string): readonly [number | undefined, boolean] {
  if (header === undefined || header === "") return [undefined, false];
  const match = typeof header === "string" ? /^([a-z2-7]{1,26})-(\d{1,15})$/.exec(header) : null;
  if (match === null) {
    throw invalid("last-event-id", "malformed", "Last-Event-ID must be the id of an event of this server");
  }
  // of an earlier run nothing is known any more
  return match[1] === start ? [Number(match[2]), false] : [0, true];
}

function textOf({ events, gap }: Batch, start: string): string {
  let text = gap ? "event: gap\ndata: {}\n\n" : "";
  for (const event of events) text += eventText(event, start);
  return text;
}

function eventText({ seq, token, ...event }: RecordedEvent, start: string): string {
  const data = JSON.stringify({
    ...event,
    at: new Date(event.at).toISOString(),
    token: token === undefined ? null : String(token),
  });
  return `id: ${start}-${seq}\nevent: ${event.kind}\ndata: ${data}\n\n`;
}
