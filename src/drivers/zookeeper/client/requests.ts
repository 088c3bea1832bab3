/** Requests of one session: those that wait for a connection, and those that have left, oldest first. */

import { ConnectionLossError, redactIds, toServerError } from "./errors.ts";
import type { JuteReader } from "./jute.ts";
import { JuteError, JuteWriter } from "./jute.ts";

/** What can be asked of a server. */
export interface Request<T> {
  readonly op: number;
  /** For messages: what is wanted, and of which node. */
  readonly description: string;
  encode(writer: JuteWriter): void;
  /** zxid: the last transaction the server had carried out, or the one that this request was. */
  decode(reader: JuteReader, zxid: bigint): T;
  /** A refusal that is an answer all the same; null: it is an error. */
  decodeRefusal?(code: number): { readonly result: T } | null;
}

/** A request with whoever waits for it. */
interface PendingRequest {
  readonly request: Request<unknown>;
  /** When nobody waits any more. */
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
  /** Of #sent, how many have been answered: cut off now and then. */
  #answeredCount = 0;
  #lastXid = 0;
  /** No call is due before; it may be too early. */
  #soonestDueAt = Number.POSITIVE_INFINITY;

  get size(): number {
    return this.#waiting.length + this.#sent.length - this.#answeredCount;
  }

  /** When rejectOverdue() may have work to do. */
  get dueAt(): number {
    return this.size === 0 ? Number.POSITIVE_INFINITY : this.#soonestDueAt;
  }

  add<T>(request: Request<T>, dueAt: number, resolve: (result: T) => void, reject: (error: Error) => void): void {
    const settle = resolve as (result: unknown) => void;
    this.#waiting.push({ request, dueAt, resolve: settle, reject, isSettled: false, xid: 0, sentAt: 0 });
    this.#soonestDueAt = Math.min(this.#soonestDueAt, dueAt);
  }

  /** The frames of all that waited: they have left from now on. */
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

  /** A reply has come, its header read; gives when its request had left. @throws JuteError if it is not the oldest's */
  settleOldest(xid: number, zxid: bigint, code: number, reader: JuteReader): number {
    const pending = this.#sent[this.#answeredCount];
    if (pending?.xid !== xid) throw new JuteError("a reply came out of its turn");
    this.#answeredCount++;
    if (this.#answeredCount >= 1_024 && this.#answeredCount * 2 >= this.#sent.length) {
      this.#sent = this.#sent.slice(this.#answeredCount);
      this.#answeredCount = 0;
    }
    settleRequest(pending, zxid, code, reader);
    return pending.sentAt;
  }

  /** The connection is gone: nobody knows what became of what had left. */
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

  /** Nobody waits any longer for some. A reply that still comes has its turn all the same. */
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

/** @throws JuteError if the reply is not what it should be */
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
