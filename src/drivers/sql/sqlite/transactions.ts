/**
 * Write transactions of one connection, one after another. SQLite has one writer for the whole database, and waiting
 * for it inside SQLite would block the event loop: a busy database is asked again after a short time, without any wait
 * inside.
 *
 * Calls that are ready together share a transaction, since a commit costs a flush of the disk: each still sees what the
 * ones before it did, and none is answered before the commit.
 *
 * The kinds of calls alternate, also from one transaction to the next: so no lease ends behind claims or releases of
 * its own process, and renewals keep no claim waiting (call-kinds.ts). So do the buckets of claims: a flood of claims
 * of one key keeps no claim of another key waiting.
 *
 * A transaction of releases only is not flushed: if a loss of power undoes them, the leases end. One that turns out to
 * grant something is rolled back and repeated with a flush, so no grant can be seen that a loss of power would undo.
 */

import type { Clock, Timer } from "../../../util/clock.ts";
import type { CallKind } from "../call-kinds.ts";
import { listKindsAfter } from "../call-kinds.ts";
import type { SqliteDatabase, SqliteStatement } from "../clients/types.ts";

/** Bounds of the delay until a busy database is asked again, in milliseconds. */
const MIN_RETRY_MS = 1;
const MAX_RETRY_MS = 20;
/** After so many milliseconds no further call joins a transaction: the event loop is blocked meanwhile. */
const MAX_TRANSACTION_MS = 10;
/** After so many milliseconds of transactions in one turn of the event loop the next one waits for another turn. */
const MAX_EVENT_LOOP_TURN_MS = 10;

/** Thrown by a call that must be flushed, in a transaction that is not. */
export class FlushNeeded extends Error {}

interface PendingWrite {
  /** May run again after a rollback. */
  readonly run: (isFlushed: boolean) => unknown;
  readonly kind: CallKind;
  /** Calls of one kind run in this order, and then in order of arrival. */
  readonly round: number;
  readonly mustFlush: boolean;
  readonly dueAt: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export interface TransactionOptions {
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** A handle that the user passed has settings of its own. */
  readonly isOwned: boolean;
  /** Called after the transaction has begun. @throws Error if it must not go on */
  readonly verify: () => void;
  readonly explain: (error: unknown) => Error;
}

export class Transactions {
  readonly #database: SqliteDatabase;
  readonly #options: TransactionOptions;
  readonly #timer: Timer;
  /** Runs when the event loop has gone on. */
  readonly #nextTurn: Timer;
  readonly #readBusyTimeout: SqliteStatement;
  /** In order of arrival. */
  #pending: PendingWrite[] = [];
  /** That of the call that ran last. */
  #lastKind: CallKind = "claim";
  /** The highest round of the claims that have run. In each round every bucket has one claim. */
  #round = 0;
  /** The highest round of each bucket that has claims still to run. */
  readonly #rounds = new Map<number, number>();
  #isScheduled = false;
  /** How often in a row the database was busy. */
  #busyCount = 0;
  #isClosed = false;
  /** When the first transaction of this turn of the event loop was asked for; null: none was. */
  #turnStartedAt: number | null = null;

  constructor(database: SqliteDatabase, options: TransactionOptions) {
    this.#database = database;
    this.#options = options;
    this.#readBusyTimeout = database.prepare("pragma busy_timeout");
    this.#timer = options.clock.timer(() => this.#runPending());
    this.#nextTurn = options.clock.timer(() => {
      this.#turnStartedAt = null;
    });
  }

  /**
   * Runs `work` in a write transaction, which excludes all other writers.
   * @param kind its place among the others
   * @param mustFlush false: `work` may run in a transaction that is not flushed, and throws FlushNeeded if it must not
   * @param bucket of a claim: claims of different buckets alternate
   * @throws Error if the database was busy for the length of the timeout; else the explained error, and nothing has
   * changed
   */
  write<T>(
    work: (isFlushed: boolean) => T,
    kind: CallKind = "renewal",
    mustFlush: boolean = true,
    bucket: number | null = null,
  ): Promise<T> {
    const { clock, timeoutMs } = this.#options;
    return new Promise((resolve, reject) => {
      if (this.#isClosed) throw new Error("sqlite: the driver is closed");
      const dueAt = clock.now() + timeoutMs;
      const settle = { resolve: resolve as (result: unknown) => void, reject };
      const round = bucket === null ? this.#round : this.#nextRound(bucket);
      this.#pending.push({ run: work, kind, round, mustFlush, dueAt, ...settle });
      this.#schedule();
    });
  }

  #nextRound(bucket: number): number {
    const round = Math.max(this.#round, this.#rounds.get(bucket) ?? 0) + 1;
    this.#rounds.set(bucket, round);
    return round;
  }

  /**
   * At the end of this turn of the event loop, unless it has lasted long: a caller that asks again at each answer would
   * otherwise never let it go on, and leases would end without their renewals.
   */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const now = this.#options.clock.now();
    if (this.#turnStartedAt === null) {
      this.#turnStartedAt = now;
      this.#nextTurn.set(now);
    }
    if (now - this.#turnStartedAt < MAX_EVENT_LOOP_TURN_MS) queueMicrotask(() => this.#runPending());
    else this.#runInNextTurn();
  }

  /** Runs `work` on one state of the database, without excluding writers; null: not possible now. */
  read<T>(work: () => T): T | null {
    // a transaction of the handle's owner may see an old state
    if (this.#isClosed || this.#database.isInTransaction() !== false) return null;
    try {
      return this.#transact("begin", true, work);
    } catch (error) {
      if (this.#database.isBusyError(error)) return null;
      throw this.#options.explain(error);
    }
  }

  /** Rejects all pending calls. */
  close(): void {
    this.#isClosed = true;
    this.#timer.keepAlive(false);
    this.#timer.stop();
    this.#nextTurn.stop();
    for (const { reject } of this.#pending.splice(0))
      reject(new Error("sqlite: the driver was closed during the call"));
  }

  #runPending(): void {
    this.#isScheduled = false;
    if (this.#isClosed) return;
    try {
      if (this.#pending.length > 0) this.#runBatch();
      this.#busyCount = 0;
      this.#runRestLater();
    } catch (error) {
      if (!this.#isTransient(error)) throw error;
      this.#busyCount++;
      this.#rejectOverdue(error);
      this.#retryLater();
    }
  }

  /** One transaction. @throws the library's error if the database is busy */
  #runBatch(mustFlush: boolean = this.#pending.some((call) => call.mustFlush)): void {
    const { clock, isOwned } = this.#options;
    // a handle of the user keeps its setting
    const isFlushed = mustFlush || !isOwned;
    const calls = orderInTurn(this.#pending, this.#lastKind);
    const finished: { readonly call: PendingWrite; readonly result: unknown }[] = [];
    try {
      this.#transact("begin immediate", isFlushed, () => {
        this.#options.verify();
        const startedAt = clock.now();
        for (const call of calls) {
          finished.push({ call, result: call.run(isFlushed) });
          if (clock.now() - startedAt >= MAX_TRANSACTION_MS) break;
        }
      });
    } catch (error) {
      if (error instanceof FlushNeeded) return this.#runBatch(true);
      if (this.#isTransient(error)) throw error;
      this.#runAlone(error, calls.slice(0, finished.length + 1));
      return;
    }
    this.#leave(calls.slice(0, finished.length));
    for (const { call, result } of finished) call.resolve(result);
  }

  /**
   * After an error of a transaction of several calls: each of them again, so that only those fail that cannot succeed.
   */
  #runAlone(error: unknown, calls: readonly PendingWrite[]): void {
    if (calls.length === 1) {
      this.#leave(calls);
      return this.#reject(calls, error);
    }
    for (const call of calls) {
      try {
        call.resolve(
          this.#transact("begin immediate", true, () => {
            this.#options.verify();
            return call.run(true);
          }),
        );
      } catch (ownError) {
        if (this.#isTransient(ownError)) throw ownError;
        this.#reject([call], ownError);
      }
      this.#leave([call]);
    }
  }

  /** They have run. */
  #leave(calls: readonly PendingWrite[]): void {
    const left = new Set(calls);
    this.#pending = this.#pending.filter((call) => !left.has(call));
    this.#lastKind = calls.at(-1)?.kind ?? this.#lastKind;
    for (const { round } of calls) this.#round = Math.max(this.#round, round);
    for (const [bucket, round] of this.#rounds) if (round <= this.#round) this.#rounds.delete(bucket);
  }

  #transact<T>(begin: string, isFlushed: boolean, work: () => T): T {
    const database = this.#database;
    const restoreTimeout = this.#disableBusyTimeout();
    try {
      // in WAL mode "normal" flushes nothing at a commit; SQLite refuses to change it inside a transaction
      if (!isFlushed) database.exec("pragma synchronous = normal");
      database.exec(begin);
      try {
        const result = work();
        database.exec("commit");
        return result;
      } catch (error) {
        // some errors have already ended it
        if (database.isInTransaction() !== false) rollBack(database);
        throw error;
      }
    } finally {
      if (!isFlushed) database.exec("pragma synchronous = full");
      restoreTimeout();
    }
  }

  /** A user's handle may wait inside SQLite, which would block the event loop. Its setting is put back. */
  #disableBusyTimeout(): () => void {
    if (this.#options.isOwned) return () => undefined;
    const [row] = this.#readBusyTimeout.all();
    const timeoutMs = Number(row?.timeout ?? 0);
    if (timeoutMs === 0) return () => undefined;
    this.#database.exec("pragma busy_timeout = 0");
    return () => this.#database.exec(`pragma busy_timeout = ${timeoutMs}`);
  }

  /** Another connection writes, or the owner of the handle has a transaction open on it: it will end. */
  #isTransient(error: unknown): boolean {
    return this.#database.isBusyError(error) || /cannot start a transaction within a transaction/.test(String(error));
  }

  #rejectOverdue(error: unknown): void {
    const now = this.#options.clock.now();
    const firstInTime = this.#pending.findIndex(({ dueAt }) => dueAt > now);
    this.#reject(this.#pending.splice(0, firstInTime === -1 ? this.#pending.length : firstInTime), error);
  }

  /** In another turn: a backlog of many batches would block the event loop. */
  #runRestLater(): void {
    const hasMore = this.#pending.length > 0;
    if (!hasMore) return this.#timer.keepAlive(false);
    this.#isScheduled = true;
    this.#runInNextTurn();
  }

  #runInNextTurn(): void {
    this.#timer.keepAlive(true);
    this.#timer.set(this.#options.clock.now());
  }

  #retryLater(): void {
    const [first] = this.#pending;
    this.#timer.keepAlive(first !== undefined);
    if (first === undefined) return;
    const bound = Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** Math.min(this.#busyCount, 10));
    const now = this.#options.clock.now();
    this.#timer.set(Math.min(now + MIN_RETRY_MS + Math.random() * (bound - MIN_RETRY_MS), first.dueAt));
    this.#isScheduled = true;
  }

  #reject(calls: readonly PendingWrite[], error: unknown): void {
    const explained = this.#options.explain(error);
    for (const { reject } of calls) reject(explained);
  }
}

/** One of each kind after another, beginning after the kind that ran last. */
function orderInTurn(calls: readonly PendingWrite[], lastKind: CallKind): readonly PendingWrite[] {
  const queues = listKindsAfter(lastKind).map((kind) =>
    calls.filter((call) => call.kind === kind).sort((first, second) => first.round - second.round),
  );
  const ordered: PendingWrite[] = [];
  for (let index = 0; ordered.length < calls.length; index++)
    for (const queue of queues) ordered.push(...queue.slice(index, index + 1));
  return ordered;
}

function rollBack(database: SqliteDatabase): void {
  try {
    database.exec("rollback");
  } catch {
    // it has ended already
  }
}
