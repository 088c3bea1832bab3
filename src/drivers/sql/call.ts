/**
 * One call to a database server: statements on one connection of the user's pool. It takes a connection, runs and
 * returns the connection, so nothing is held between calls.
 *
 *   queued ──► throttled ──► asking ──► sent ──► over        "throttled" is for claims only
 *
 * queued      Other calls for its bucket are in its way.
 * throttled   So many other claims are asking that this one may not (call-scheduler.ts).
 * asking      It has asked the pool for a connection.
 * sent        It has a connection, and the database may execute it. A server that has become a standby may leave its
 *             connections open, and refuses every call on them: it has executed nothing. Such a connection is closed,
 *             and the call, which stays "sent", goes on with another one, since new ones lead to the primary.
 * over        It has an answer, or an error, or was given up, which it can be in each state: it has timed out, its
 *             claim was released, or the driver was closed. It has returned its connection, and sends nothing any more.
 *
 * What was given up sends nothing: while a pool is exhausted, connections arrive late, and a claim sent then would
 * enter a queue that its client has left. A statement that was already sent may still commit; its connection is closed,
 * because its state is unknown.
 */

import type { Clock } from "../../util/clock.ts";
import type { CallTimeouts } from "../call-timeouts.ts";
import type { CallKind } from "./call-kinds.ts";
import type { CallScheduler, ScheduledCall } from "./call-scheduler.ts";
import type { SqlClient, SqlConnection, SqlResult, SqlValue } from "./clients/types.ts";

export interface CallOptions {
  /** The name of the driver, which begins the messages. */
  readonly driverName: string;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Whether the connection may be in an open transaction, or broken, after this error: then the pool closes it. */
  readonly isBrokenBy: (error: unknown) => boolean;
  /**
   * Whether the server that refused the call only reads: it may have been the primary when the connection was opened.
   */
  readonly isReadOnly: (error: unknown) => boolean;
  /**
   * Called when a connection broke, could not be opened, is in an unknown state, or leads to a server that only reads.
   */
  readonly onBreak: (isReadOnly: boolean) => void;
  /** Explains an error of the database. */
  readonly explain: (error: unknown) => unknown;
}

/** What the calls of a session share. */
export interface CallContext extends CallOptions {
  readonly client: SqlClient;
  readonly timeouts: CallTimeouts;
  readonly scheduler: CallScheduler;
  readonly isClosed: () => boolean;
}

/** The connection of a call. Once the call is over it sends nothing: it may be another caller's by then. */
export interface CallConnection extends Pick<SqlConnection, "query"> {
  /** How long the call may still take. */
  readonly remainingMs: number;
}

/**
 * The share of a call's time after which a server ends its statement: the answer arrives before the client gives the
 * call up.
 */
export const ANSWER_IN_TIME = 0.9;

/** What a call does with its connection. With another connection it does it again. */
export type Work<T> = (connection: CallConnection) => Promise<T>;

/** Times are those of the clock. */
type OpenState =
  | { readonly at: "queued" }
  | { readonly at: "throttled" | "asking"; readonly startedAt: number }
  | {
      readonly at: "sent";
      /** When no other call for its bucket was in its way any more. */
      readonly startedAt: number;
      /** When it got its connection. */
      readonly sentAt: number;
      /** null: the server only reads, and the call has asked for another one. */
      readonly connection: SqlConnection | null;
    };
type CallState = OpenState | { readonly at: "over" };

const QUEUED: CallState = { at: "queued" };
const OVER: CallState = { at: "over" };

/**
 * How many connections to a server that only reads a call may meet: as many as pools have unless their users say
 * otherwise.
 */
const MAX_READ_ONLY = 10;

export class Call<T> implements ScheduledCall, CallConnection {
  readonly bucket: number | null;
  readonly kind: CallKind;
  readonly result: Promise<T>;
  readonly #context: CallContext;
  readonly #work: Work<T>;
  readonly #createdAt: number;
  readonly #stopTimeout: () => boolean;
  #state: CallState = QUEUED;
  #resolve!: (result: T) => void;
  #reject!: (error: unknown) => void;

  /** Its timeout begins. Give it to the scheduler. */
  constructor(context: CallContext, work: Work<T>, bucket: number | null, kind: CallKind) {
    this.bucket = bucket;
    this.kind = kind;
    this.#context = context;
    this.#work = work;
    this.#createdAt = context.clock.now();
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#stopTimeout = context.timeouts.start(() => this.#onTimeout(), this.#createdAt);
  }

  get remainingMs(): number {
    return this.#createdAt + this.#context.timeoutMs - this.#context.clock.now();
  }

  query(text: string, values?: readonly SqlValue[]): Promise<SqlResult> {
    const connection = this.#state.at === "sent" ? this.#state.connection : null;
    return connection?.query(text, values) ?? Promise.reject(new Error("the call is over"));
  }

  throttle(): void {
    this.#state = { at: "throttled", startedAt: this.#context.clock.now() };
  }

  ask(): void {
    const startedAt = this.#state.at === "throttled" ? this.#state.startedAt : this.#context.clock.now();
    this.#state = { at: "asking", startedAt };
    this.#run(startedAt).then(this.#resolve, (error: unknown) => {
      this.#end(true);
      this.#reject(this.#context.explain(error));
    });
  }

  /** Gives the call up, which has this result. */
  withdraw(result: T): void {
    this.#end(true);
    this.#resolve(result);
  }

  #onTimeout(): void {
    if (this.#state.at === "over") return;
    const { driverName, timeoutMs, isClosed } = this.#context;
    const problem = isClosed()
      ? "the driver was closed during the call"
      : explainTimeout(this.#state, this.#createdAt, timeoutMs);
    this.#end(true);
    this.#reject(new Error(`${driverName}: ${problem}`));
  }

  async #run(startedAt: number): Promise<T> {
    for (let refusals = 1; ; refusals++) {
      try {
        return await this.#runOnce(startedAt);
      } catch (error) {
        if (!this.#context.isReadOnly(error) || this.#state.at === "over") throw error;
        // nothing was executed
        if (this.#state.at === "sent") {
          this.#state.connection?.release(true);
          this.#state = { ...this.#state, connection: null };
        }
        this.#context.onBreak(true);
        if (refusals === MAX_READ_ONLY) throw error;
      }
    }
  }

  async #runOnce(startedAt: number): Promise<T> {
    const { client, clock, scheduler, isBrokenBy, isReadOnly, onBreak } = this.#context;
    const connection = await client.connect().catch((error: unknown) => {
      onBreak(false);
      throw error;
    });
    if (this.#state.at === "over") {
      connection.release();
      throw new Error("the call was given up before it had a connection");
    }
    const sentAt = clock.now();
    this.#state = { at: "sent", startedAt, sentAt, connection };
    scheduler.onSent(this);
    try {
      const result = await this.#work(this);
      this.#end(false, clock.now() - sentAt);
      return result;
    } catch (error) {
      if (!isReadOnly(error)) this.#end(isBrokenBy(error));
      throw error;
    }
  }

  #end(isBroken: boolean, answerMs: number | null = null): void {
    const state = this.#state;
    if (state.at === "over") return;
    this.#state = OVER;
    this.#stopTimeout();
    if (state.at === "sent" && state.connection !== null) {
      state.connection.release(isBroken);
      if (isBroken) this.#context.onBreak(false);
    }
    this.#context.scheduler.onOver(this, answerMs);
  }
}

/** Names the longest wait: else a database that answers at once would look slow, or a pool that is free exhausted. */
function explainTimeout(state: OpenState, createdAt: number, timeoutMs: number): string {
  const others = "behind other calls of this process for the same key";
  if (state.at === "queued") return `not sent within ${timeoutMs} ms, ${others}`;
  const bucketWaitMs = state.startedAt - createdAt;
  const isBucketWait = bucketWaitMs > timeoutMs / 2;
  if (state.at !== "sent") {
    if (isBucketWait) return `not sent within ${timeoutMs} ms, ${others}`;
    return `no free connection within ${timeoutMs} ms: are all connections of the pool in use?`;
  }
  const problem = `no answer within ${timeoutMs} ms`;
  if (isBucketWait) return `${problem}, of which it waited ${Math.round(bucketWaitMs)} ms ${others}`;
  const poolWaitMs = state.sentAt - state.startedAt;
  if (poolWaitMs <= timeoutMs / 2) return problem;
  return `${problem}, of which it waited ${Math.round(poolWaitMs)} ms for a connection of the pool`;
}
