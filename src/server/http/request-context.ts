/** A request in progress, and its reply. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Principal } from "../auth/access-control.ts";

/** The argument of a handler. */
export interface RequestContext {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** The account that sends the request. */
  readonly principal: Principal;
  /** The address of the client; "" if the connection has ended already. */
  readonly address: string;
  /** Aborted when the connection has ended: no reply can be sent any more. */
  readonly disconnected: AbortSignal;
}

/** The result of a handler; a handler that returns null writes the response itself. */
export interface HttpReply {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

export interface Route {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Needs no credential, because the reply says nothing about locks. */
  readonly isPublic?: true;
  handle(call: RequestContext): Promise<HttpReply | null> | HttpReply | null;
}

/** A reply in JSON. It ends with a line feed, for reading in a terminal. */
export function jsonReply(status: number, value: unknown): HttpReply {
  return { status, type: "application/json", text: `${JSON.stringify(value)}\n` };
}

export function sendReply(outgoing: ServerResponse, { status, type, text }: HttpReply): void {
  outgoing.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  outgoing.end(text);
}

/** A signal that is aborted when the connection of this request ends, and a function to call after the reply. */
export function watchDisconnect(incoming: IncomingMessage): readonly [AbortSignal, () => void] {
  const { socket } = incoming;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (socket.destroyed) abort();
  // not the "close" of the response: with pipelined requests only the first response would emit it
  socket.once("close", abort);
  return [controller.signal, () => socket.removeListener("close", abort)];
}
