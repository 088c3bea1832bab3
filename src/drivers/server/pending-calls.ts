/** The calls of one connection that have no reply yet. */

import { FatalDriverError } from "../../errors.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import { SlotMap } from "../../util/slot-map.ts";

/** Refusals of a call that asking again does not change. */
const FATAL_CODES: ReadonlySet<string> = new Set(["FATAL", "FLOOR", "FORBIDDEN", "LIMIT", "UNSUPPORTED"]);
/** Refusals of a hello likewise. A server that is full (LIMIT) will have room again. */
const FATAL_HELLO_CODES: ReadonlySet<string> = new Set(["AUTH", "UNSUPPORTED", "VERSION"]);

interface PendingCall {
  readonly decode: (result: unknown) => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class PendingCalls {
  readonly #pending = new SlotMap<number, PendingCall>();
  #lastId = 0;

  get size(): number {
    return this.#pending.size;
  }

  /** A number that no call had before, for one whose reply is of no interest. */
  nextId(): number {
    return ++this.#lastId;
  }

  /** Gives the number of a call whose reply `decode` understands. */
  add<T>(decode: (result: unknown) => T, resolve: (result: T) => void, reject: (error: Error) => void): number {
    const callId = this.nextId();
    this.#pending.add(callId, { decode, resolve: resolve as PendingCall["resolve"], reject });
    return callId;
  }

  /** A reply has come. @throws ProtocolError if it is malformed; its call then fails with its connection */
  settle(verb: "ok" | "error", frame: readonly unknown[]): void {
    const callId = frame[1] as number;
    const call = this.#pending.get(callId);
    if (call === undefined) return;
    if (verb === "ok") call.resolve(call.decode(frame[2]));
    this.#pending.delete(callId);
    if (verb === "error") call.reject(toCallError(String(frame[2]), String(frame[3])));
  }

  rejectAll(error: Error): void {
    const calls = this.#pending.values();
    this.#pending.clear();
    for (const call of calls) call.reject(error);
  }
}

/** What toConnectionLostError() has made: their causes are told on, not they. */
const connectionLostErrors = new WeakSet<Error>();

/**
 * What a call is told of the loss of its connection, or of none: a FatalDriverError if the server has refused our hello
 * for good. Whoever was let in and is thrown out may come back: its credential may have been changed.
 * @param serverName the server as messages name it
 */
export function toConnectionLostError(
  error: Error | null,
  wasUp: boolean,
  serverName: string = "the lock server",
): Error {
  const cause = error !== null && connectionLostErrors.has(error) ? (error.cause as Error | null) : error;
  const isRefusal = cause instanceof ProtocolError;
  if (isRefusal && !wasUp && FATAL_HELLO_CODES.has(cause.code)) {
    return new FatalDriverError(`${serverName} refused: ${cause.message}`, { cause });
  }
  if (error instanceof FatalDriverError) return error;
  const summary = wasUp ? "the connection to the lock server was lost" : "the lock server cannot be reached";
  // what the wire says names the server by itself
  const detail = cause === null ? "" : `: ${isRefusal ? `${serverName}: ` : ""}${cause.message}`;
  const lostError = new Error(`${summary}${detail}`, { cause });
  connectionLostErrors.add(lostError);
  return lostError;
}

function toCallError(code: string, message: string): Error {
  return FATAL_CODES.has(code) ? new FatalDriverError(message) : Object.assign(new Error(message), { code });
}
