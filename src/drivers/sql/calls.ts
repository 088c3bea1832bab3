/**
 * Runs statements of a database server on connections of the user's pool. A call takes a connection, runs its statement
 * and returns the connection, so nothing is held between calls.
 *
 * A call that has timed out sends nothing any more: while a pool is exhausted, connections arrive late, and a claim sent
 * then would enter a queue that its client has left. A statement that was already sent may still commit; its connection
 * is closed, because its state is unknown.
 *
 * Calls that lock one and the same bucket are sent one after another, so that a busy key occupies one connection of the pool (bucket-schedule.ts).
 *
 * Invariants of claims, of which a program may make hundreds at once, while one call renews or releases many
 * - A pool serves in order, so `claim` calls ask for a connection a few at a time, and all others at once: leases do not end because
 *   their renewals wait behind a burst of claims (claim-call-queue.ts).
 * - A claim has at most one call without a connection: one that repeats it gets the same answer. Without this a pool that is too slow
 *   would be given more calls the slower it is.
 * - A release withdraws such a call of its claim: sent later than a tombstone lives, it would queue a claim that is over. If no earlier
 *   call of the claim was sent, there is nothing to release, and nothing is sent.
 *
 * A server that has become a standby may leave its connections open, and refuses every call on them. Each of these connections is closed,
 * and the call goes on with the next: new ones lead to the primary.
 */

import type { ClaimId } from "../../spi/driver.ts";
import { chunk } from "../../util/chunk.ts";
import type { Clock } from "../../util/clock.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import type { CallKind } from "./bucket-schedule.ts";
import { BucketSchedule } from "./bucket-schedule.ts";
import { ClaimCallQueue } from "./claim-call-queue.ts";
import type { SqlClient, SqlConnection, SqlResult, SqlValue } from "./clients/types.ts";
import type { ReleaseReply, ReleaseRow } from "./dialect.ts";
import { MAX_RELEASES, ReleaseBatches } from "./release-batches.ts";
import { toOneBucket } from "./schema.ts";

export interface CallOptions {
  /** The name of the driver, which begins the messages. */
  readonly driverName: string;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Whether the connection may be in an open transaction, or broken, after this error: then the pool closes it. */
  readonly isBrokenBy: (error: unknown) => boolean;
  /** Whether the server that refused the call only reads: it may have been the primary when the connection was opened. */
  readonly isReadOnly: (error: unknown) => boolean;
  /** Called when a connection broke, could not be opened, is in an unknown state, or leads to a server that only reads. */
  readonly onBreak: (isReadOnly: boolean) => void;
  /** Explains an error of the database. */
  readonly explain: (error: unknown) => unknown;
}

/** The connection of a call. Once the call is over or given up it sends nothing: it may be another caller's by then. */
export interface CallConnection extends Pick<SqlConnection, "query"> {
  /** How long the call may still take. */
  readonly remainingMs: number;
}

/** How many connections to a server that only reads a call may meet: as many as pools have unless their users say otherwise. */
const MAX_READ_ONLY = 10;

type Work<T> = (connection: CallConnection) => Promise<T>;

export class Calls {
  readonly #client: SqlClient;
  readonly #options: CallOptions;
  readonly #timeouts: CallTimeouts;
  readonly #bucketSchedule: BucketSchedule;
  readonly #claimCalls = new ClaimCallQueue();
  readonly #releaseBatches = new ReleaseBatches();
  /** The `claim` calls that have no connection. */
  readonly #unsentClaims = new Map<ClaimId, PendingCall<SqlResult | null>>();
  /**
   * How many `claim` calls of a claim are under way, of each that has one under way or unsent, or one that failed: the database may
   * have it. Until it is released.
   */
  readonly #sentClaims = new Map<ClaimId, number>();
  #isClosed = false;

  constructor(client: SqlClient, options: CallOptions) {
    this.#client = client;
    this.#options = options;
    this.#timeouts = new CallTimeouts(options.clock, options.timeoutMs, options.driverName);
    this.#bucketSchedule = new BucketSchedule(options.clock);
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
    const call = this.#createCall(work);
    const start = (): void => {
      call.noteStart();
      call.start();
    };
    if (bucket === null) start();
    else call.onOver = this.#bucketSchedule.schedule(bucket, kind, start);
    return call.result;
  }

  /** Like run(), for the `claim` call of this claim. null: it was not sent, because the claim was released. */
  runClaim(claimId: ClaimId, bucket: number, work: Work<SqlResult>): Promise<SqlResult | null> {
    if (this.#isClosed) return this.#rejectClosed();
    const unsent = this.#unsentClaims.get(claimId);
    if (unsent !== undefined) return unsent.result;
    const call = this.#createCall<SqlResult | null>(work);
    let leaveQueue = (): void => undefined;
    call.onLeave = () => {
      this.#unsentClaims.delete(claimId);
      leaveQueue();
    };
    call.onSent = () => {
      this.#sentClaims.set(claimId, (this.#sentClaims.get(claimId) ?? 0) + 1);
      call.result.then(
        () => this.#endClaimCall(claimId, true),
        () => this.#endClaimCall(claimId, false),
      );
    };
    this.#unsentClaims.set(claimId, call);
    call.onOver = this.#bucketSchedule.schedule(bucket, "claim", () => {
      call.noteStart();
      leaveQueue = this.#claimCalls.enqueue(() => call.start());
    });
    return call.result;
  }

  #endClaimCall(claimId: ClaimId, isAnswered: boolean): void {
    const count = this.#sentClaims.get(claimId);
    if (count === undefined) return; // released
    if (count === 1 && isAnswered && !this.#unsentClaims.has(claimId)) this.#sentClaims.delete(claimId);
    else this.#sentClaims.set(claimId, count - 1);
  }

  /**
   * Releases those of these claims that were sent to the database. The others did not exist there.
   * @param toWork makes the statement that releases rows
   */
  async release(
    rows: readonly ReleaseRow[],
    toWork: (rows: readonly ReleaseRow[]) => Work<ReleaseReply>,
  ): Promise<ReleaseReply> {
    const sentRows = this.#unsentClaims.size === 0 ? rows : rows.filter(({ id }) => !this.#withdrawUnsent(id));
    for (const { id } of sentRows) this.#sentClaims.delete(id);
    const replies: ReleaseReply[] = [];
    for (const chunkOfRows of chunk(sentRows, MAX_RELEASES)) replies.push(await this.#release(chunkOfRows, toWork));
    if (sentRows === rows && replies.length === 1) return replies[0] as ReleaseReply;
    const flags = replies.flatMap((reply) => reply.flags);
    const flagById = new Map(sentRows.map(({ id }, index) => [id, flags[index] as boolean]));
    return {
      flags: rows.map(({ id }) => flagById.get(id) ?? false),
      pushes: replies.flatMap(({ pushes }) => pushes),
    };
  }

  #release(
    rows: readonly ReleaseRow[],
    toWork: (rows: readonly ReleaseRow[]) => Work<ReleaseReply>,
  ): Promise<ReleaseReply> {
    const bucket = toOneBucket(rows);
    if (bucket === null) return this.run(toWork(rows));
    return this.#releaseBatches.join(bucket, rows, (takeRows) =>
      this.run((connection) => toWork(takeRows())(connection), bucket, "release"),
    );
  }

  /** Withdraws the `claim` call without a connection, if there is one. Was the claim never sent? */
  #withdrawUnsent(id: ClaimId): boolean {
    const unsent = this.#unsentClaims.get(id);
    unsent?.withdraw(Promise.resolve(null));
    return unsent !== undefined && !this.#sentClaims.has(id);
  }

  /** Rejects all pending calls; later calls reject at once. Does not close the client. */
  close(): void {
    this.#isClosed = true;
    this.#timeouts.expireAll();
    this.#bucketSchedule.close();
  }

  #createCall<T>(work: Work<T>): PendingCall<T> {
    const { driverName, timeoutMs } = this.#options;
    const call = new PendingCall(this.#client, work, this.#options);
    call.onAnswer = (afterMs) => this.#bucketSchedule.noteAnswer(afterMs);
    call.stopTimeout = this.#timeouts.start(() => {
      const problem = this.#isClosed ? "the driver was closed during the call" : explainTimeout(call, timeoutMs);
      call.abandon(new Error(`${driverName}: ${problem}`));
    });
    return call;
  }

  #rejectClosed(): Promise<never> {
    return Promise.reject(new Error(`${this.#options.driverName}: the driver is closed`));
  }
}

/** How far a call has come. */
interface CallProgress {
  /** How long it waited behind other calls for its bucket; null: it still waits. */
  readonly bucketWaitMs: number | null;
  /** How long it waited for its connection after that; null: it has none yet. */
  readonly poolWaitMs: number | null;
}

/** Names the longest wait: else a database that answers at once would look slow, or a pool that is free exhausted. */
function explainTimeout({ bucketWaitMs, poolWaitMs }: CallProgress, timeoutMs: number): string {
  const isBucketWait = bucketWaitMs === null || bucketWaitMs > timeoutMs / 2;
  const others = "behind other calls of this process for the same key";
  if (poolWaitMs === null) {
    if (isBucketWait) return `not sent within ${timeoutMs} ms, ${others}`;
    return `no free connection within ${timeoutMs} ms: are all connections of the pool in use?`;
  }
  const problem = `no answer within ${timeoutMs} ms`;
  if (isBucketWait) return `${problem}, of which it waited ${Math.round(bucketWaitMs ?? 0)} ms ${others}`;
  if (poolWaitMs <= timeoutMs / 2) return problem;
  return `${problem}, of which it waited ${Math.round(poolWaitMs)} ms for a connection of the pool`;
}

/** One call, from the time it is made until it has returned its connection. */
class PendingCall<T> implements CallProgress, CallConnection {
  readonly result: Promise<T>;
  /** False: it has timed out. */
  stopTimeout: () => boolean = () => true;
  /** Called once: when it has a connection. From now on the database may execute it. */
  onSent: () => void = () => undefined;
  /** Called once: when it has a connection, or will not get one. */
  onLeave: () => void = () => undefined;
  /** Called once: when it has returned its connection, or will not get one. */
  onOver: () => void = () => undefined;
  /** Called with the time from its connection to its result. */
  onAnswer: (afterMs: number) => void = () => undefined;
  readonly #client: SqlClient;
  readonly #work: Work<T>;
  readonly #options: CallOptions;
  readonly #createdAt: number;
  #resolve: (result: T | Promise<T>) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  #connection: SqlConnection | null = null;
  /** When no other call for its bucket was in its way any more; null: not yet. */
  #startedAt: number | null = null;
  #poolWaitMs: number | null = null;
  #hasLeft = false;
  #isOver = false;
  #isAbandoned = false;

  constructor(client: SqlClient, work: Work<T>, options: CallOptions) {
    this.#client = client;
    this.#work = work;
    this.#options = options;
    this.#createdAt = options.clock.now();
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get bucketWaitMs(): number | null {
    return this.#startedAt === null ? null : this.#startedAt - this.#createdAt;
  }

  get poolWaitMs(): number | null {
    return this.#poolWaitMs;
  }

  get remainingMs(): number {
    return this.#createdAt + this.#options.timeoutMs - this.#options.clock.now();
  }

  query(text: string, values?: readonly SqlValue[]): Promise<SqlResult> {
    if (this.#connection === null || this.#isOver) return Promise.reject(new Error("the call is over"));
    return this.#connection.query(text, values);
  }

  /** No other call for its bucket is in its way: from now on it waits for a connection. */
  noteStart(): void {
    this.#startedAt = this.#options.clock.now();
  }

  /** Asks for a connection, and runs. */
  start(): void {
    this.#run().then(
      (result) => {
        if (this.stopTimeout()) this.#resolve(result);
      },
      (error: unknown) => {
        this.#end(true);
        if (this.stopTimeout()) this.#reject(this.#options.explain(error));
      },
    );
  }

  /** Settles like `outcome`. It has no connection, and sends nothing any more. */
  withdraw(outcome: Promise<T>): void {
    this.stopTimeout();
    this.#abandon();
    this.#resolve(outcome);
  }

  abandon(error: Error): void {
    this.#abandon();
    this.#reject(error);
  }

  async #run(): Promise<T> {
    for (let refusals = 1; ; refusals++) {
      try {
        return await this.#runOnce();
      } catch (error) {
        if (!this.#options.isReadOnly(error) || this.#isAbandoned) throw error;
        // nothing was executed
        this.#connection?.release(true);
        this.#connection = null;
        this.#options.onBreak(true);
        if (refusals === MAX_READ_ONLY) throw error;
      }
    }
  }

  async #runOnce(): Promise<T> {
    const connection = await this.#client.connect().catch((error: unknown) => {
      this.#options.onBreak(false);
      throw error;
    });
    if (this.#isAbandoned) {
      connection.release();
      throw new Error("the call was abandoned before it had a connection");
    }
    this.#connection = connection;
    const sentAt = this.#options.clock.now();
    this.#poolWaitMs = sentAt - (this.#startedAt ?? this.#createdAt);
    if (!this.#hasLeft) this.onSent();
    this.#leave();
    try {
      const result = await this.#work(this);
      this.onAnswer(this.#options.clock.now() - sentAt);
      this.#end(false);
      return result;
    } catch (error) {
      if (this.#options.isReadOnly(error)) throw error;
      this.#end(this.#options.isBrokenBy(error));
      throw error;
    }
  }

  #abandon(): void {
    this.#isAbandoned = true;
    this.#end(true);
  }

  #leave(): void {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.onLeave();
  }

  #end(isBroken: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#connection?.release(isBroken);
    if (isBroken && this.#connection !== null) this.#options.onBreak(false);
    this.#leave();
    this.onOver();
  }
}
