/** The calls of one connection that have no reply yet. */

import { StoreRefusedError } from "../../errors.ts";
import { SlotMap } from "../../util/slot-map.ts";

/** Error codes of calls for which a retry is useless. */
const FATAL_CODES: ReadonlySet<string> = new Set(["FLOOR", "FORBIDDEN", "LIMIT", "UNSUPPORTED"]);

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

function toCallError(code: string, message: string): Error {
  if (!FATAL_CODES.has(code)) return Object.assign(new Error(message), { code });
  return Object.assign(new StoreRefusedError(message), { refusal: code });
}
