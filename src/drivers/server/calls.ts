/** The calls of one connection that have no reply yet. */

import { SlotMap } from "../../core/slot-map.ts";
import { FatalDriverError } from "../../errors.ts";
import { ProtocolError } from "../../protocol/hello.ts";

/** Refusals of a call that asking again does not change. */
const FATAL: ReadonlySet<string> = new Set(["FATAL", "FLOOR", "FORBIDDEN", "LIMIT", "UNSUPPORTED"]);
/** Refusals of a hello likewise. A server that is full (LIMIT) will have room again. */
const FATAL_AT_HELLO: ReadonlySet<string> = new Set(["AUTH", "UNSUPPORTED", "VERSION"]);

interface Call {
  readonly read: (raw: unknown) => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class Calls {
  readonly #open = new SlotMap<number, Call>();
  #last = 0;

  get size(): number {
    return this.#open.size;
  }

  /** A number that no call had before, for one whose reply is of no interest. */
  next(): number {
    return ++this.#last;
  }

  /** Gives the number of a call whose reply `read` understands. */
  add<T>(read: (raw: unknown) => T, resolve: (result: T) => void, reject: (error: Error) => void): number {
    const n = this.next();
    this.#open.add(n, { read, resolve: resolve as Call["resolve"], reject });
    return n;
  }

  /** A reply has come. @throws ProtocolError if it is malformed; its call then fails with its connection */
  reply(verb: "ok" | "error", frame: readonly unknown[]): void {
    const n = frame[1] as number;
    const call = this.#open.get(n);
    if (call === undefined) return;
    if (verb === "ok") call.resolve(call.read(frame[2]));
    this.#open.delete(n);
    if (verb === "error") call.reject(errorOf(String(frame[2]), String(frame[3])));
  }

  failAll(error: Error): void {
    const calls = this.#open.values();
    this.#open.clear();
    for (const call of calls) call.reject(error);
  }
}

/** What lossOf() has made: their causes are told on, not they. */
const losses = new WeakSet<Error>();

/**
 * What a call is told of the loss of its connection, or of none: a FatalDriverError if the server has refused our hello
 * for good. Whoever was let in and is thrown out may come back: its credential may have been changed.
 * @param to the server as messages name it
 */
export function lossOf(error: Error | null, wasUp: boolean, to: string = "the lock server"): Error {
  const cause = error !== null && losses.has(error) ? (error.cause as Error | null) : error;
  const isRefusal = cause instanceof ProtocolError;
  if (isRefusal && !wasUp && FATAL_AT_HELLO.has(cause.code)) {
    return new FatalDriverError(`${to} refused: ${cause.message}`, { cause });
  }
  if (error instanceof FatalDriverError) return error;
  const what = wasUp ? "the connection to the lock server was lost" : "the lock server cannot be reached";
  // what the wire says names the server by itself
  const why = cause === null ? "" : `: ${isRefusal ? `${to}: ` : ""}${cause.message}`;
  const loss = new Error(`${what}${why}`, { cause });
  losses.add(loss);
  return loss;
}

function errorOf(code: string, message: string): Error {
  return FATAL.has(code) ? new FatalDriverError(message) : Object.assign(new Error(message), { code });
}
