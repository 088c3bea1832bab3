/**
 * Runs statements of a database server on connections of the user's pool. A call takes a connection, runs its statement
 * and returns the connection, so nothing is held between calls.
 *
 * A call that has timed out sends nothing any more: while a pool is exhausted, connections arrive late, and a claim sent
 * then would enter a queue that its client has left. A statement that was already sent may still commit; its connection
 * is closed, because its state is unknown.
 */

import type { Clock } from "../../util/clock.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import type { SqlClient, SqlConnection, SqlResult, SqlValue } from "./clients/types.ts";

export interface CallOptions {
  /** The name of the driver, which begins the messages. */
  readonly driverName: string;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Whether the connection may be in an open transaction, or broken, after this error: then the pool closes it. */
  readonly isBrokenBy: (error: unknown) => boolean;
  /** Explains an error of the database. */
  readonly explain: (error: unknown) => unknown;
}

export class Calls {
  readonly #client: SqlClient;
  readonly #options: CallOptions;
  readonly #timeouts: CallTimeouts;
  #isClosed = false;

  constructor(client: SqlClient, options: CallOptions) {
    this.#client = client;
    this.#options = options;
    this.#timeouts = new CallTimeouts(options.clock, options.timeoutMs, options.driverName);
  }

  /** Runs one statement on a connection of the pool. */
  query(text: string, values: readonly SqlValue[] = []): Promise<SqlResult> {
    return this.run((connection) => connection.query(text, values));
  }

  /**
   * Runs `work` on one connection of the pool.
   * @throws Error when it takes longer than a call may, or is closed; otherwise the explained error of the database
   */
  run<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    const { driverName, timeoutMs } = this.#options;
    if (this.#isClosed) return Promise.reject(new Error(`${driverName}: the driver is closed`));
    return new Promise((resolve, reject) => {
      const call = new PendingCall(this.#options.isBrokenBy, this.#options.clock);
      const stopTimeout = this.#timeouts.start(() => {
        const problem = explainTimeout(call.poolWaitMs, timeoutMs);
        call.abandon();
        reject(new Error(`${driverName}: ${this.#isClosed ? "the driver was closed during the call" : problem}`));
      });
      call.run(this.#client, work).then(
        (result) => {
          if (stopTimeout()) resolve(result);
        },
        (error: unknown) => {
          if (stopTimeout()) reject(this.#options.explain(error));
        },
      );
    });
  }

  /** Rejects all pending calls; later calls reject at once. Does not close the client. */
  close(): void {
    this.#isClosed = true;
    this.#timeouts.expireAll();
  }
}

/** @param poolWaitMs how long the call waited for its connection; null: it has none yet */
function explainTimeout(poolWaitMs: number | null, timeoutMs: number): string {
  if (poolWaitMs === null) return `no free connection within ${timeoutMs} ms: are all connections of the pool in use?`;
  // else a database that answers at once would look slow
  const isPoolWait = poolWaitMs > timeoutMs / 2;
  const part = isPoolWait ? `, of which it waited ${Math.round(poolWaitMs)} ms for a connection of the pool` : "";
  return `no answer within ${timeoutMs} ms${part}`;
}

/** One call from the request for a connection until its return. */
class PendingCall {
  readonly #isBrokenBy: (error: unknown) => boolean;
  readonly #clock: Clock;
  readonly #startedAt: number;
  #connection: SqlConnection | null = null;
  #poolWaitMs: number | null = null;
  #isAbandoned = false;

  constructor(isBrokenBy: (error: unknown) => boolean, clock: Clock) {
    this.#isBrokenBy = isBrokenBy;
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  get poolWaitMs(): number | null {
    return this.#poolWaitMs;
  }

  async run<T>(client: SqlClient, work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    const connection = await client.connect();
    if (this.#isAbandoned) {
      connection.release();
      throw new Error("the call was abandoned before it had a connection");
    }
    this.#connection = connection;
    this.#poolWaitMs = this.#clock.now() - this.#startedAt;
    try {
      const result = await work(connection);
      this.#release(false);
      return result;
    } catch (error) {
      this.#release(this.#isBrokenBy(error));
      throw error;
    }
  }

  abandon(): void {
    this.#isAbandoned = true;
    this.#release(true);
  }

  #release(isBroken: boolean): void {
    const connection = this.#connection;
    this.#connection = null;
    connection?.release(isBroken);
  }
}
