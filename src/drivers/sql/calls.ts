/**
 * The calls of a session to a database server: call.ts says what becomes of each, call-scheduler.ts when it is sent.
 * Claims that are given up before they are sent cost nothing (unsent-claims.ts), and releases that wait share a
 * statement (release-batches.ts).
 */

import type { ClaimId } from "../../spi/driver.ts";
import { chunk } from "../../util/chunk.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import type { CallContext, CallOptions, Work } from "./call.ts";
import { Call } from "./call.ts";
import type { CallKind } from "./call-kinds.ts";
import { CallScheduler } from "./call-scheduler.ts";
import type { SqlClient, SqlResult, SqlValue } from "./clients/types.ts";
import type { ReleaseReply, ReleaseRow } from "./dialect.ts";
import { MAX_RELEASES, ReleaseBatches } from "./release-batches.ts";
import { toOneBucket } from "./schema.ts";
import { UnsentClaims } from "./unsent-claims.ts";

export class Calls {
  readonly #context: CallContext;
  readonly #unsentClaims = new UnsentClaims<SqlResult | null>();
  readonly #releaseBatches = new ReleaseBatches();
  #isClosed = false;

  constructor(client: SqlClient, options: CallOptions) {
    const { clock, timeoutMs, driverName } = options;
    this.#context = {
      ...options,
      client,
      timeouts: new CallTimeouts(clock, timeoutMs, driverName),
      scheduler: new CallScheduler(clock),
      isClosed: () => this.#isClosed,
    };
  }

  /** Runs one statement on a connection of the pool. */
  query(text: string, values: readonly SqlValue[] = []): Promise<SqlResult> {
    return this.run((connection) => connection.query(text, values));
  }

  /**
   * Runs `work` on one connection of the pool.
   * @param bucket the one bucket that it locks: it waits for other calls for it; null: it locks none, or several
   * @param kind its place among them
   * @throws Error when it takes longer than a call may, or is closed; otherwise the explained error of the database
   */
  run<T>(work: Work<T>, bucket: number | null = null, kind: CallKind = "renewal"): Promise<T> {
    if (this.#isClosed) return this.#rejectClosed();
    if (bucket !== null && kind === "release") this.#releaseBatches.closeBatch(bucket);
    return this.#start(work, bucket, kind).result;
  }

  /** Like run(), for the `claim` call of this claim. null: it was not sent, because the claim was released. */
  runClaim(claimId: ClaimId, bucket: number, work: Work<SqlResult>): Promise<SqlResult | null> {
    if (this.#isClosed) return this.#rejectClosed();
    return this.#unsentClaims.claim(claimId, (onSent) => {
      const send: Work<SqlResult | null> = (connection) => {
        onSent();
        return work(connection);
      };
      const call = this.#start(send, bucket, "claim");
      return { result: call.result, withdraw: () => call.withdraw(null) };
    });
  }

  /**
   * Releases those of these claims that were sent to the database. The others did not exist there.
   * @param toWork makes the statement that releases rows
   */
  release(
    rows: readonly ReleaseRow[],
    toWork: (rows: readonly ReleaseRow[]) => Work<ReleaseReply>,
  ): Promise<ReleaseReply> {
    return this.#unsentClaims.release(rows, async (sentRows) => {
      const replies: ReleaseReply[] = [];
      for (const part of chunk(sentRows, MAX_RELEASES)) replies.push(await this.#releasePart(part, toWork));
      const [first, ...rest] = replies;
      if (first !== undefined && rest.length === 0) return first;
      return { flags: replies.flatMap(({ flags }) => flags), pushes: replies.flatMap(({ pushes }) => pushes) };
    });
  }

  #releasePart(
    rows: readonly ReleaseRow[],
    toWork: (rows: readonly ReleaseRow[]) => Work<ReleaseReply>,
  ): Promise<ReleaseReply> {
    const bucket = toOneBucket(rows);
    if (bucket === null) return this.run(toWork(rows));
    return this.#releaseBatches.join(bucket, rows, (takeRows) =>
      this.run((connection) => toWork(takeRows())(connection), bucket, "release"),
    );
  }

  /** Rejects all pending calls; later calls reject at once. Does not close the client. */
  close(): void {
    const { timeouts, scheduler } = this.#context;
    this.#isClosed = true;
    timeouts.expireAll();
    scheduler.close();
  }

  #start<T>(work: Work<T>, bucket: number | null, kind: CallKind): Call<T> {
    const call = new Call(this.#context, work, bucket, kind);
    this.#context.scheduler.add(call);
    return call;
  }

  #rejectClosed(): Promise<never> {
    return Promise.reject(new Error(`${this.#context.driverName}: the driver is closed`));
  }
}
