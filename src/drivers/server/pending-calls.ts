/** The calls of one connection that have no reply yet. */

import { FatalDriverError } from "../../errors.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import { SlotMap } from "../../util/slot-map.ts";

/** Error codes of calls for which a retry is useless. */
const FATAL_CODES: ReadonlySet<string> = new Set(["FATAL", "FLOOR", "FORBIDDEN", "LIMIT", "UNSUPPORTED"]);
/** The same for a hello. Not LIMIT: a full server will have room again. */
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

  /** An unused call number, for a call whose reply does not matter. */
  nextId(): number {
    return ++this.#lastId;
  }

  /** Adds a call, whose reply `decode` decodes, and returns its number. */
  add<T>(decode: (result: unknown) => T, resolve: (result: T) => void, reject: (error: Error) => void): number {
    const callId = this.nextId();
    this.#pending.add(callId, { decode, resolve: resolve as PendingCall["resolve"], reject });
    return callId;
  }

  /**
   * Settles the call of a reply.
   * @throws ProtocolError if the reply is malformed; the call then fails with its connection
   */
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

/** Errors created by toConnectionLostError(). When one is wrapped again, its cause is used instead. */
const connectionLostErrors = new WeakSet<Error>();

/**
 * The error of a call whose connection was lost or never made: a FatalDriverError if the server refused the hello
 * permanently. A client that was connected and is then refused may retry: its credential may have been rotated.
 * @param serverName the server's name in messages
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
  // the transport's own messages already name the server
  const detail = cause === null ? "" : `: ${isRefusal ? `${serverName}: ` : ""}${cause.message}`;
  const lostError = new Error(`${summary}${detail}`, { cause });
  connectionLostErrors.add(lostError);
  return lostError;
}

function toCallError(code: string, message: string): Error {
  return FATAL_CODES.has(code) ? new FatalDriverError(message) : Object.assign(new Error(message), { code });
}
