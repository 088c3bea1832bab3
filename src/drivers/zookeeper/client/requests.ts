/** The requests of one session: those that wait for a connection, and those that were sent, oldest first. */

import { ConnectionLossError, redactIds, toServerError } from "./errors.ts";
import type { JuteReader } from "./jute.ts";
import { JuteError, JuteWriter } from "./jute.ts";

/** One request to a server. */
export interface Request<T> {
  readonly op: number;
  /** For messages: the operation and the node. */
  readonly description: string;
  encode(writer: JuteWriter): void;
  /** zxid: the last transaction the server had carried out, or this request's own. */
  decode(reader: JuteReader, zxid: bigint): T;
  /** A refusal that counts as an answer; null: it is an error. */
  decodeRefusal?(code: number): { readonly result: T } | null;
}

/** A request and the promise of its caller. */
interface PendingRequest {
  readonly request: Request<unknown>;
  /** When the request times out. */
  readonly dueAt: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
  isSettled: boolean;
  xid: number;
  sentAt: number;
}

const MAX_XID = 0x7fff_ffff;

export class PendingRequests {
  #waiting: PendingRequest[] = [];
  #sent: PendingRequest[] = [];
  /** How many at the front of #sent have been answered; they are removed in batches. */
  #answeredCount = 0;
  #lastXid = 0;
  /** No request is due before this time; it may be earlier than necessary. */
  #soonestDueAt = Number.POSITIVE_INFINITY;

  get size(): number {
    return this.#waiting.length + this.#sent.length - this.#answeredCount;
  }

  /** When rejectOverdue() must be called next. */
  get dueAt(): number {
    return this.size === 0 ? Number.POSITIVE_INFINITY : this.#soonestDueAt;
  }

  add<T>(request: Request<T>, dueAt: number, resolve: (result: T) => void, reject: (error: Error) => void): void {
    const settle = resolve as (result: unknown) => void;
    this.#waiting.push({ request, dueAt, resolve: settle, reject, isSettled: false, xid: 0, sentAt: 0 });
    this.#soonestDueAt = Math.min(this.#soonestDueAt, dueAt);
  }

  /** The frames of all waiting requests, which count as sent from now on. */
  drain(now: number): Buffer[] {
    const frames: Buffer[] = [];
    for (const pending of this.#waiting) {
      if (pending.isSettled) continue;
      this.#lastXid = this.#lastXid === MAX_XID ? 1 : this.#lastXid + 1;
      [pending.xid, pending.sentAt] = [this.#lastXid, now];
      const writer = new JuteWriter().int(pending.xid).int(pending.request.op);
      pending.request.encode(writer);
      frames.push(writer.frame());
      this.#sent.push(pending);
    }
    this.#waiting = [];
    return frames;
  }

  /**
   * Settles the oldest request with a reply whose header was read; returns when the request was sent.
   * @throws JuteError if the reply is for another request
   */
  settleOldest(xid: number, zxid: bigint, code: number, reader: JuteReader): number {
    const pending = this.#sent[this.#answeredCount];
    if (pending?.xid !== xid) throw new JuteError("a reply is out of order");
    this.#answeredCount++;
    if (this.#answeredCount >= 1_024 && this.#answeredCount * 2 >= this.#sent.length) {
      this.#sent = this.#sent.slice(this.#answeredCount);
      this.#answeredCount = 0;
    }
    settleRequest(pending, zxid, code, reader);
    return pending.sentAt;
  }

  /** The connection has ended: the outcome of the sent requests is unknown. */
  rejectSent(cause: Error | null): void {
    for (const pending of this.#takeSent()) {
      rejectRequest(
        pending,
        new ConnectionLossError(
          true,
          `ZooKeeper: ${redactIds(pending.request.description)}: the connection was lost`,
          cause,
        ),
      );
    }
  }

  rejectAll(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const pending of [...this.#takeSent(), ...waiting]) rejectRequest(pending, error);
  }

  /** Times out overdue requests. They keep their slot, because replies arrive in request order. */
  rejectOverdue(now: number): void {
    if (now < this.#soonestDueAt) return;
    const sent = this.#sent.slice(this.#answeredCount);
    for (const pending of sent) if (now >= pending.dueAt) rejectRequest(pending, createTimeoutError(pending, true));
    for (const pending of this.#waiting)
      if (now >= pending.dueAt) rejectRequest(pending, createTimeoutError(pending, false));
    this.#waiting = this.#waiting.filter((pending) => !pending.isSettled);
    const dueTimes = [...sent, ...this.#waiting].filter((pending) => !pending.isSettled).map(({ dueAt }) => dueAt);
    this.#soonestDueAt = dueTimes.reduce((soonest, dueAt) => Math.min(soonest, dueAt), Number.POSITIVE_INFINITY);
  }

  #takeSent(): PendingRequest[] {
    const sent = this.#sent.slice(this.#answeredCount);
    this.#sent = [];
    this.#answeredCount = 0;
    return sent;
  }
}

/** @throws JuteError if the reply is malformed */
function settleRequest(pending: PendingRequest, zxid: bigint, code: number, reader: JuteReader): void {
  const { request } = pending;
  try {
    const answer = code === 0 ? { result: request.decode(reader, zxid) } : (request.decodeRefusal?.(code) ?? null);
    if (answer === null) throw toServerError(code, request.description);
    if (!pending.isSettled) pending.resolve(answer.result);
    pending.isSettled = true;
  } catch (error) {
    if (error instanceof JuteError) throw error;
    rejectRequest(pending, error as Error);
  }
}

function rejectRequest(pending: PendingRequest, error: Error): void {
  if (pending.isSettled) return;
  pending.isSettled = true;
  pending.reject(error);
}

function createTimeoutError({ request }: PendingRequest, isSent: boolean): ConnectionLossError {
  return new ConnectionLossError(isSent, `ZooKeeper: ${redactIds(request.description)}: no answer in time`);
}
