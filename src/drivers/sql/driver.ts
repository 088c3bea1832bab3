/**
 * Databases as a store: a table row for each claim. This file is what is the same for all; dialect.ts says what a
 * database must do, and the folders postgres/, mysql/ and sqlite/ do it.
 *
 * Invariants (each is kept where it is named in the dialects)
 * I1 The permits of the held rows of a key never exceed the limit of any of them: a row is granted only under the lock
 *    of the key's bucket row, by what was read after that lock was taken.
 * I2 A token is higher than all tokens granted before in its bucket: last_token rises in the transaction of the grant.
 * I3 A row leaves only by release, by expiry on the database's clock, or by revoke; later only a `claim` call without a
 *    tombstone brings its id back.
 * I4 No verb waits for another claim's release, and no connection is kept between calls. Bucket rows are locked in
 *    ascending order, and rows of claims only under their bucket's lock, so calls do not deadlock.
 * I5 A push is sent at commit, and says only what a later read would say.
 */

import type {
  Answer,
  Check,
  Claim,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  RevokeTarget,
  Traits,
} from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import type { RestoreLost } from "../data-loss-guard.ts";
import { DataLossGuard, resolveMaxTtlMs } from "../data-loss-guard.ts";
import { RecentReleases } from "../recent-releases.ts";
import { decodeAnswer, decodePush, parseWaitersAhead } from "../reply-codec.ts";
import { formatWarnings, resolveWarn } from "../warnings.ts";
import type { ClaimRow, Dialect, DialectSession, ReleaseRow } from "./dialect.ts";
import { LeftoverClaims } from "./leftover-claims.ts";
import { ClaimLister } from "./list.ts";
import { openDatabase } from "./open.ts";
import type { SqlOptions } from "./options.ts";
import { RecheckTimes } from "./recheck.ts";
import { toBucket } from "./schema.ts";

/**
 * One statement serves all waiting claims of a process, four times a second if their queues have not moved for a
 * second.
 */
const DEFAULT_RECHECK_INTERVALS = { nextMs: 3.125, shortMs: 25, firstMs: 1_000, longMs: 250 };

/** Creates the driver of a database. The options were validated by the dialect. */
export function createSqlDriver(dialect: Dialect, options: SqlOptions): Driver {
  return new SqlDriver(dialect, options);
}

class SqlDriver implements Driver {
  readonly name: string;
  readonly #dialect: Dialect;
  readonly #options: SqlOptions;
  readonly #clock: Clock;
  readonly #recheckTimes: RecheckTimes;
  readonly #guard: DataLossGuard;
  readonly #leftoverClaims: LeftoverClaims;
  readonly #recentReleases = new RecentReleases();
  #lister = new ClaimLister();
  /**
   * Counts calls that failed: what the database said before the last failure is no answer, since it may have changed.
   */
  #failureCount = 0;
  /** A release whose outcome is unknown may have granted claims of this process, and its reply is lost. */
  #hasLostRelease = false;
  /** null: not open. */
  #session: DialectSession | null = null;
  #events: DriverEvents | null = null;

  constructor(dialect: Dialect, options: SqlOptions) {
    this.name = dialect.name;
    this.#dialect = dialect;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#recheckTimes = new RecheckTimes(dialect.recheckIntervals ?? DEFAULT_RECHECK_INTERVALS, this.#clock);
    this.#guard = new DataLossGuard({
      driverName: this.name,
      storeName: "the database",
      maxTtlMs: resolveMaxTtlMs(options.guardDataLoss),
      warn: resolveWarn(options.warn),
      onLoss: () => {
        this.#events?.disconnected();
        this.#events?.reconnected();
      },
      heldTokens: (id) => this.#events?.heldTokens(id) ?? null,
      restoresUnknown: true,
    });
    this.#leftoverClaims = new LeftoverClaims({
      clock: this.#clock,
      read: () => this.#call((session) => session.readOwned()),
      isReleased: (id) => this.#recentReleases.has(id),
      release: (rows) => this.#release(rows.map((row) => ({ ...row, hasUnansweredClaim: false }))),
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const { connectTimeout, warn, silenceWarnings } = this.#options;
    const dialectEvents = {
      pushed: (message: string, isAnswer: boolean) => this.#onPush(message, isAnswer),
      disconnected: () => this.#events?.disconnected(),
      missed: () => {
        this.#leftoverClaims.onBreak();
        this.#events?.reconnected();
      },
    };
    const isGuarded = resolveMaxTtlMs(this.#options.guardDataLoss) !== null;
    const database = {
      name: this.name,
      open: () => this.#dialect.open(dialectEvents),
      inspect: async (session: DialectSession) => ({
        // what is left of a grace period after a loss of data; 0: none is running, or guardDataLoss is off
        graceMs: isGuarded ? await session.checkDataLoss() : 0,
        checks: await session.diagnose(),
      }),
    };
    const { session, found } = await openDatabase(database, this.#clock, toConnectTimeoutMs(connectTimeout));
    this.#guard.onOpen(found.graceMs, silenceWarnings);
    for (const warning of formatWarnings(this.name, found.checks, silenceWarnings)) resolveWarn(warn)(warning);
    this.#session = session;
    this.#events = events;
    this.#lister = new ClaimLister();
    return {
      lease: { claim: true },
      manyKeys: false,
      permits: "any",
      fencing: true,
      fifo: true,
      durability: this.#dialect.durability,
      recall: session.pushesRecalls ? "push" : "recheck",
    };
  }

  async claim(claim: Claim): Promise<Answer> {
    this.#guard.checkTtl(claim);
    this.#recentReleases.onClaim(claim.id);
    const row = this.#toRow(claim);
    const reply = await this.#call((session) => session.claim(row));
    const answer = this.#toAnswer(claim, reply);
    this.#guard.onAnswers([claim], [answer], [reply]);
    return answer;
  }

  async renew(claims: readonly Claim[]): Promise<readonly Answer[]> {
    const rows = claims.map((claim) => this.#toRow(claim));
    const replies = await this.#callSorted(rows, (session, sorted) => session.renew(sorted));
    const answers = claims.map((claim, index) => this.#toAnswer(claim, replies[index] as string));
    await this.#guard.restoreLost(claims, replies, answers, this.#restoreLost);
    this.#guard.onAnswers(claims, answers, replies);
    return answers;
  }

  readonly #restoreLost: RestoreLost = (lost) => {
    const rows = lost.map(({ claim, token, tokenCount }) => ({ ...this.#toRow(claim), token, tokenCount }));
    return this.#callSorted(rows, (session, sorted) => session.restore(sorted));
  };

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    for (const { claim } of releases) {
      this.#recheckTimes.endWait(claim);
      this.#recentReleases.onRelease(claim.id);
    }
    const rows = releases.map(({ claim, hasUnansweredClaim }) =>
      Object.assign(this.#toRow(claim), { hasUnansweredClaim }),
    );
    const flags = await this.#release(rows);
    for (const { id } of rows) this.#recentReleases.onReleased(id);
    return flags;
  }

  async #release(rows: readonly ReleaseRow[]): Promise<readonly boolean[]> {
    const failuresBefore = this.#failureCount;
    let pushes: readonly string[] = [];
    const flags = await this.#callSorted(rows, async (session, sorted) => {
      const reply = await session.release(sorted);
      pushes = reply.pushes;
      return reply.flags;
    }).catch((error: unknown) => {
      this.#hasLostRelease = true;
      throw error;
    });
    for (const push of pushes) this.#onPush(push, failuresBefore === this.#failureCount);
    if (this.#hasLostRelease) {
      this.#hasLostRelease = false;
      this.#events?.reconnected();
    }
    return flags;
  }

  detach(claims: readonly Claim[], remainingMs?: number): Promise<readonly boolean[]> {
    const rows = claims.map((claim) => this.#toRow(claim));
    const wholeMs = remainingMs === undefined ? null : Math.ceil(remainingMs);
    return this.#callSorted(rows, (session, sorted) => session.detach(sorted, wholeMs));
  }

  revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
    const rows = targets.map(({ key, token, now }) => ({ key, bucket: toBucket(key), token, removesRow: now }));
    return this.#callSorted(rows, (session, sorted) => session.revoke(sorted));
  }

  list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
    return this.#call((session) => this.#lister.list(session, query, options));
  }

  async diagnose(): Promise<readonly Check[]> {
    return [...(await this.#call((session) => session.diagnose())), ...this.#guard.diagnose()];
  }

  async close(): Promise<void> {
    const session = this.#session;
    this.#events = null;
    this.#session = null;
    await session?.close();
  }

  async #call<T>(call: (session: DialectSession) => Promise<T>): Promise<T> {
    if (this.#session === null) throw new Error(`${this.name}: the driver is not open`);
    try {
      const result = await call(this.#session);
      this.#leftoverClaims.onAnswered();
      return result;
    } catch (error) {
      this.#failureCount++;
      this.#leftoverClaims.onFailure();
      throw error;
    }
  }

  /** Calls with the rows in the order in which their buckets are locked (I4); the results have the order of `rows`. */
  async #callSorted<R extends { readonly bucket: number }, T>(
    rows: readonly R[],
    call: (session: DialectSession, sorted: readonly R[]) => Promise<readonly T[]>,
  ): Promise<readonly T[]> {
    if (rows.length === 0) return [];
    if (rows.length === 1) return this.#callAll(rows, call);
    const order = Array.from(rows.keys()).sort((left, right) => (rows[left] as R).bucket - (rows[right] as R).bucket);
    const sortedResults = await this.#callAll(
      order.map((index) => rows[index] as R),
      call,
    );
    const results: T[] = new Array(rows.length);
    for (const [position, index] of order.entries()) results[index] = sortedResults[position] as T;
    return results;
  }

  async #callAll<R, T>(
    rows: readonly R[],
    call: (session: DialectSession, rows: readonly R[]) => Promise<readonly T[]>,
  ): Promise<readonly T[]> {
    const results = await this.#call((session) => call(session, rows));
    if (results.length === rows.length) return results;
    throw new Error(`${this.name}: the database answered for ${results.length} of ${rows.length} claims`);
  }

  #toRow({ id, locks: [lock], ttlMs, tokenCount, floor, wait, label, recall = false }: Claim): ClaimRow {
    return {
      id,
      key: lock.key,
      bucket: toBucket(lock.key),
      permits: lock.permits,
      limit: lock.limit,
      ttlMs: Number(ttlMs), // never "session": see traits
      tokenCount,
      floor,
      wait,
      label: label || (this.#options.label ?? ""),
      recall,
    };
  }

  #toAnswer(claim: Claim, reply: string): Answer {
    const answer = decodeAnswer(reply, this.name);
    if (answer.state !== "waiting") {
      this.#recheckTimes.endWait(claim);
      return answer;
    }
    // in a grace period nothing is granted before its end, at which the database has asked for a recheck
    if (this.#session?.hasPush !== false || answer.paused !== undefined) return answer;
    return { ...answer, recheckMs: this.#recheckTimes.next(claim, parseWaitersAhead(reply), answer.recheckMs) };
  }

  #onPush(message: string, isAnswer: boolean): void {
    const push = decodePush(message);
    if (push === null) return;
    if (push.isRecall) return this.#events?.recalled(push.id);
    if (push.answer !== undefined && isAnswer) this.#events?.pushed(push.id, push.answer);
    else this.#events?.recheck(push.id);
  }
}
