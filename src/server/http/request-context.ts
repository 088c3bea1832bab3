/** One request while it is answered, and its answer. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Principal } from "../auth/access-control.ts";

/** What a handler is given. */
export interface RequestContext {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** Who asks. */
  readonly principal: Principal;
  /** Its address; "" if it is not known any more. */
  readonly address: string;
  /** Aborted when the connection has ended: nobody is left to be answered. */
  readonly disconnected: AbortSignal;
}

/** What a handler gives; null: it answers by itself. */
export interface HttpReply {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

export interface Route {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Whoever may ask: it tells nothing of locks. Default: who shows a valid credential, where one is needed. */
  readonly isPublic?: true;
  handle(call: RequestContext): Promise<HttpReply | null> | HttpReply | null;
}

/** An answer in JSON, with a line feed at its end, as people read it in a terminal. */
export function jsonReply(status: number, value: unknown): HttpReply {
  return { status, type: "application/json", text: `${JSON.stringify(value)}\n` };
}

export function sendReply(outgoing: ServerResponse, { status, type, text }: HttpReply): void {
  outgoing.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  outgoing.end(text);
}

/** Aborted when the connection of this request ends; call the second when it has been answered. */
export function watchDisconnect(incoming: IncomingMessage): readonly [AbortSignal, () => void] {
  const { socket } = incoming;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (socket.destroyed) abort();
  // of several requests on one connection only the first would hear of its end by its own response
  socket.once("close", abort);
  return [controller.signal, () => socket.removeListener("close", abort)];
}
