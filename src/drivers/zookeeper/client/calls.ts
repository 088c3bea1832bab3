/** Requests of one session: those that wait for a connection, and those that have left, oldest first. */

import { ConnectionLossError, errorOf, withoutIds } from "./errors.ts";
import type { JuteReader } from "./jute.ts";
import { JuteError, JuteWriter } from "./jute.ts";

/** What can be asked of a server. */
export interface Request<T> {
  readonly op: number;
  /** For messages: what is wanted, and of which node. */
  readonly what: string;
  write(writer: JuteWriter): void;
  /** zxid: the last transaction the server had carried out, or the one that this request was. */
  read(reader: JuteReader, zxid: bigint): T;
  /** A refusal that is an answer all the same; null: it is an error. */
  refused?(code: number): { readonly result: T } | null;
}

/** A request with whoever waits for it. */
interface Call {
  readonly request: Request<unknown>;
  /** When nobody waits any more. */
  readonly dueAt: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
  settled: boolean;
  xid: number;
  sentAt: number;
}

const MOST_XID = 0x7fff_ffff;

export class Calls {
  #waiting: Call[] = [];
  #sent: Call[] = [];
  /** Of #sent, how many have been answered: cut off now and then. */
  #answered = 0;
  #lastXid = 0;
  /** No call is due before; it may be too early. */
  #soonest = Number.POSITIVE_INFINITY;

  get size(): number {
    return this.#waiting.length + this.#sent.length - this.#answered;
  }

  /** When endLate() may have work to do. */
  get dueAt(): number {
    return this.size === 0 ? Number.POSITIVE_INFINITY : this.#soonest;
  }

  add<T>(request: Request<T>, dueAt: number, resolve: (result: T) => void, reject: (error: Error) => void): void {
    const settle = resolve as (result: unknown) => void;
    this.#waiting.push({ request, dueAt, resolve: settle, reject, settled: false, xid: 0, sentAt: 0 });
    this.#soonest = Math.min(this.#soonest, dueAt);
  }

  /** The frames of all that waited: they have left from now on. */
  send(now: number): Buffer[] {
    const frames: Buffer[] = [];
    for (const call of this.#waiting) {
      if (call.settled) continue;
      this.#lastXid = this.#lastXid === MOST_XID ? 1 : this.#lastXid + 1;
      [call.xid, call.sentAt] = [this.#lastXid, now];
      const writer = new JuteWriter().int(call.xid).int(call.request.op);
      call.request.write(writer);
      frames.push(writer.frame());
      this.#sent.push(call);
    }
    this.#waiting = [];
    return frames;
  }

  /** A reply has come, its header read; gives when its request had left. @throws JuteError if it is not the oldest's */
  reply(xid: number, zxid: bigint, code: number, reader: JuteReader): number {
    const call = this.#sent[this.#answered];
    if (call?.xid !== xid) throw new JuteError("a reply came out of its turn");
    this.#answered++;
    if (this.#answered >= 1_024 && this.#answered * 2 >= this.#sent.length) {
      this.#sent = this.#sent.slice(this.#answered);
      this.#answered = 0;
    }
    settle(call, zxid, code, reader);
    return call.sentAt;
  }

  /** The connection is gone: nobody knows what became of what had left. */
  lost(cause: Error | null): void {
    for (const call of this.#takeSent()) {
      fail(
        call,
        new ConnectionLossError(true, `ZooKeeper: ${withoutIds(call.request.what)}: the connection was lost`, cause),
      );
    }
  }

  failAll(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const call of [...this.#takeSent(), ...waiting]) fail(call, error);
  }

  /** Nobody waits any longer for some. A reply that still comes has its turn all the same. */
  endLate(now: number): void {
    if (now < this.#soonest) return;
    const sent = this.#sent.slice(this.#answered);
    for (const call of sent) if (now >= call.dueAt) fail(call, late(call, true));
    for (const call of this.#waiting) if (now >= call.dueAt) fail(call, late(call, false));
    this.#waiting = this.#waiting.filter((call) => !call.settled);
    const due = [...sent, ...this.#waiting].filter((call) => !call.settled).map(({ dueAt }) => dueAt);
    this.#soonest = due.reduce((least, one) => Math.min(least, one), Number.POSITIVE_INFINITY);
  }

  #takeSent(): Call[] {
    const sent = this.#sent.slice(this.#answered);
    this.#sent = [];
    this.#answered = 0;
    return sent;
  }
}

/** @throws JuteError if the reply is not what it should be */
function settle(call: Call, zxid: bigint, code: number, reader: JuteReader): void {
  const { request } = call;
  try {
    const answer = code === 0 ? { result: request.read(reader, zxid) } : (request.refused?.(code) ?? null);
    if (answer === null) throw errorOf(code, request.what);
    if (!call.settled) call.resolve(answer.result);
    call.settled = true;
  } catch (error) {
    if (error instanceof JuteError) throw error;
    fail(call, error as Error);
  }
}

function fail(call: Call, error: Error): void {
  if (call.settled) return;
  call.settled = true;
  call.reject(error);
}

function late({ request }: Call, sent: boolean): ConnectionLossError {
  return new ConnectionLossError(sent, `ZooKeeper: ${withoutIds(request.what)}: no answer in time`);
}
