/**
 * The dialect of PostgreSQL: stored functions (sql/), one call and one round trip for each verb, pushes by NOTIFY. Its
 * clock is sql/read_clock.sql.
 */

import type { Check } from "../../../spi/driver.ts";
import { chunk } from "../../../util/chunk.ts";
import type { Clock } from "../../../util/clock.ts";
import { systemClock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { resolveMaxTtlMs } from "../../data-loss-guard.ts";
import { decodeFlags } from "../../reply-codec.ts";
import { resolveWarn } from "../../warnings.ts";
import type { CallConnection } from "../call.ts";
import type { CallKind } from "../call-kinds.ts";
import { Calls } from "../calls.ts";
import type { SqlClient, SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
import type {
  ClaimRow,
  Dialect,
  DialectEvents,
  DialectSession,
  ListedRow,
  ListRequest,
  OwnedRow,
  ReleaseReply,
  ReleaseRow,
  RestoreRow,
  RevokeRow,
} from "../dialect.ts";
import { DEFAULT_COMMAND_TIMEOUT_MS } from "../options.ts";
import { toOneBucket, toUpperBound } from "../schema.ts";
import { createServerDialect } from "../server-dialect.ts";
import type { PushState } from "./diagnostics.ts";
import { diagnose, UNREACHABLE } from "./diagnostics.ts";
import { breaksConnection, explainError, isReadOnlyError } from "./errors.ts";
import { Listener } from "./listener.ts";
import { expandStatement, RECALL } from "./migration.ts";
import type { PostgresLocation, PostgresOptions } from "./options.ts";
import { resolveLocation } from "./options.ts";
import { isSettingError, queryPlain } from "./plain-transaction.ts";
import { verifyDatabase } from "./verify-database.ts";

/** The most claims of one statement: it keeps the bucket rows of all of them locked until it commits. */
const MAX_BATCH = 1_000;
/** No key has more characters. */
const MAX_KEY_LENGTH = 512;
const LAST_CHARACTER = "\u{10ffff}";
/**
 * A call that may be given up before its wait for a lock ends at the server (migration.ts) is sent with the time that
 * it has left.
 */
const MIN_REMAINING_MS = 4_500;

/** `ownsClient`: close() closes the client. */
export function createPostgresDialect(
  createClient: () => Promise<SqlClient>,
  ownsClient: boolean,
  options: PostgresOptions,
): Dialect {
  const createSession = async (events: DialectEvents): Promise<PostgresSession> =>
    new PostgresSession(await createClient(), ownsClient, options, events);
  return createServerDialect("postgres", createSession, explainError);
}

type Statements = Readonly<
  Record<
    "claim" | "renew" | "renewAndProbe" | "release" | "detach" | "revoke" | "list" | "readOwned" | "check" | "restore",
    string
  >
>;

class PostgresSession implements DialectSession {
  readonly #client: SqlClient;
  readonly #ownsClient: boolean;
  readonly #options: PostgresOptions;
  readonly #location: PostgresLocation;
  readonly #clock: Clock;
  readonly #events: DialectEvents;
  readonly #calls: Calls;
  /** null: the client is a single connection. */
  readonly #listener: Listener | null;
  readonly #statements: Statements;
  readonly #stopWatching: () => void;
  /**
   * The channel of this process. One that cannot listen has a name that is no channel, and that no other process has.
   */
  readonly #inbox: string;
  /** 0: guardDataLoss is off. */
  readonly #maxTtlMs: number;
  /** The option recall, if pushes arrive when the session is opened: from then on the listener stays open. */
  #pushesRecalls = false;
  /** Sessions of this database begin at another isolation level, so no call is tried with their settings first. */
  #isAlwaysPlain = false;
  /**
   * That of the last claim that was answered "waiting". What the driver does besides its calls takes turns with calls
   * for this bucket, so that a process whose callers want one key has one connection.
   */
  #waitingBucket: number | null = null;

  constructor(client: SqlClient, ownsClient: boolean, options: PostgresOptions, events: DialectEvents) {
    const { clock = systemClock, commandTimeoutMs = DEFAULT_COMMAND_TIMEOUT_MS } = options;
    this.#client = client;
    this.#ownsClient = ownsClient;
    this.#options = options;
    this.#location = resolveLocation(options);
    this.#clock = clock;
    this.#events = events;
    this.#calls = new Calls(client, {
      driverName: "postgres",
      clock,
      timeoutMs: commandTimeoutMs,
      isBrokenBy: breaksConnection,
      isReadOnly: isReadOnlyError,
      onBreak: (isReadOnly) => {
        events.disconnected();
        if (isReadOnly) this.#listener?.leave();
      },
      explain: explainError,
    });
    this.#listener = this.#createListener();
    this.#stopWatching = client.watchBreaks(() => events.disconnected());
    this.#inbox = this.#listener?.channel ?? randomId();
    this.#statements = createStatements(this.#location);
    this.#maxTtlMs = resolveMaxTtlMs(options.guardDataLoss) ?? 0;
  }

  /** @throws StoreRefusedError if this database cannot keep locks */
  async prepare(): Promise<void> {
    const isCreating = this.#options.createTables ?? true;
    const { isReadCommitted } = await verifyDatabase(this.#calls, this.#location, isCreating);
    this.#isAlwaysPlain = !isReadCommitted;
    // takes the lock of a bucket, as every call does
    await this.#callFunction(this.#statements.detach, ["", null, "0"]);
    if (this.#options.recall === true && this.#listener !== null) this.#pushesRecalls = await this.#listener.stayOpen();
  }

  get pushesRecalls(): boolean {
    return this.#pushesRecalls;
  }

  get hasPush(): boolean {
    return this.#listener?.isReceiving === true;
  }

  async claim(row: ClaimRow): Promise<string> {
    const { id, key, bucket, permits, limit, ttlMs, tokenCount, floor, wait, label } = row;
    const values = [
      id,
      key,
      bucket,
      permits,
      limit,
      ttlMs,
      tokenCount,
      floor,
      wait,
      label.replaceAll("\0", ""), // PostgreSQL refuses it
      this.#inbox,
      this.#maxTtlMs,
      this.#toRecall(row),
    ];
    const work = this.#toWork(this.#statements.claim, values);
    const result = await this.#calls.runClaim(id, bucket, work);
    if (result === null) return "n";
    const [reply = "", ...pushes] = readLines(result);
    if (reply.startsWith("w")) this.#waitingBucket = bucket;
    this.#onReplies([reply], pushes);
    return reply;
  }

  async renew(rows: readonly ClaimRow[]): Promise<readonly string[]> {
    const allReplies: string[] = [];
    for (const batch of chunk(rows, MAX_BATCH)) {
      const lines = await this.#callRenew(batch);
      const replies = lines.slice(0, batch.length);
      this.#onReplies(replies, lines.slice(batch.length));
      allReplies.push(...replies);
    }
    return allReplies;
  }

  release(rows: readonly ReleaseRow[]): Promise<ReleaseReply> {
    return this.#calls.release(rows, (batch) => {
      const values = [
        joinIds(batch),
        batch.map(({ ttlMs }) => ttlMs).join(),
        batch.map(({ hasUnansweredClaim }) => (hasUnansweredClaim ? 1 : 0)).join(),
        joinBuckets(batch),
        this.#inbox,
        this.#maxTtlMs,
      ];
      const work = this.#toWork(this.#statements.release, values);
      return async (connection) => decodeFlags(readReply(await work(connection)), batch.length, "postgres");
    });
  }

  async detach(rows: readonly ClaimRow[], remainingMs: number | null): Promise<readonly boolean[]> {
    const flags: boolean[] = [];
    for (const batch of chunk(rows, MAX_BATCH)) {
      const values = [joinIds(batch), remainingMs, joinBuckets(batch)];
      const [reply] = await this.#callFunction(this.#statements.detach, values, toOneBucket(batch));
      flags.push(...decodeFlags(reply, batch.length, "postgres").flags);
    }
    return flags;
  }

  async revoke(rows: readonly RevokeRow[]): Promise<readonly boolean[]> {
    const flags: boolean[] = [];
    for (const { key, bucket, token, removesRow } of rows) {
      const values = [key, bucket, token, removesRow, this.#inbox, this.#maxTtlMs];
      const [reply, ...pushes] = await this.#callFunction(this.#statements.revoke, values, bucket);
      this.#onReplies([], pushes);
      flags.push(...decodeFlags(reply, 1, "postgres").flags);
    }
    return flags;
  }

  async list({ prefix = "", key, max, after }: ListRequest): Promise<readonly ListedRow[]> {
    // keys contain no control characters
    const end = key === undefined ? (toUpperBound(prefix) ?? LAST_CHARACTER.repeat(MAX_KEY_LENGTH)) : `${key}\u0001`;
    const values = [key ?? prefix, end, after?.key ?? "", after?.arrival ?? 0, max];
    return parseRows(await this.#callFunction(this.#statements.list, values)).map(toListedRow);
  }

  async readOwned(): Promise<readonly OwnedRow[]> {
    const reply = await this.#callFunction(this.#statements.readOwned, [this.#inbox], this.#waitingBucket);
    return parseRows(reply).map(({ id, key, bucket, ttl }) => ({
      id: String(id),
      key: String(key),
      bucket: Number(bucket),
      ttlMs: Number(ttl),
    }));
  }

  async checkDataLoss(): Promise<number> {
    const [reply] = await this.#callFunction(this.#statements.check, [this.#maxTtlMs]);
    return Number(reply);
  }

  async restore(rows: readonly RestoreRow[]): Promise<readonly string[]> {
    const replies: string[] = [];
    for (const batch of chunk(rows, MAX_BATCH)) {
      const claims = encodeRestored(batch, (row) => this.#toRecall(row));
      const values = [claims, this.#inbox, this.#maxTtlMs];
      replies.push(...(await this.#callFunction(this.#statements.restore, values, toOneBucket(batch), "release")));
    }
    return replies;
  }

  diagnose(): Promise<readonly Check[]> {
    return diagnose(this.#calls, this.#pushState);
  }

  async close(): Promise<void> {
    this.#stopWatching();
    this.#listener?.close();
    this.#calls.close();
    if (this.#ownsClient) await this.#client.close();
  }

  get #pushState(): PushState {
    if (this.#listener === null) return "none";
    if (this.#listener.isUnreachable) return "unreachable";
    return this.#listener.isReceiving ? "receiving" : "unused";
  }

  /** How the claim learns that another one waits, as the table has it (schema.sql). */
  #toRecall({ recall }: ClaimRow): number {
    if (!recall) return RECALL.none;
    return this.#pushesRecalls ? RECALL.byPush : RECALL.byReply;
  }

  #createListener(): Listener | null {
    const { connectDedicated } = this.#client;
    if (connectDedicated === undefined) return null;
    const { silenceWarnings = [] } = this.#options;
    const warn = resolveWarn(this.#options.warn);
    return new Listener(
      {
        clock: this.#clock,
        connect: connectDedicated,
        notify: (channel, payload) => this.#notify(channel, payload),
      },
      {
        onPush: (message, isAnswer) => this.#events.pushed(message, isAnswer),
        onEnd: () => this.#events.disconnected(),
        onMissed: () => this.#events.missed(),
        onUnreachable: () => {
          if (!silenceWarnings.includes("push")) warn(`postgres: ${UNREACHABLE.message}; ${UNREACHABLE.hint}`);
        },
      },
    );
  }

  /**
   * Sends a notification, in turn with the calls for the bucket of a waiting claim. In a plain transaction, which a
   * server that only reads refuses: by itself it would accept a notification, and another server is the primary.
   */
  #notify(channel: string, payload: string): Promise<SqlResult> {
    const statement = "select pg_catalog.pg_notify($1, $2)";
    return this.#calls.run((connection) => queryPlain(connection, statement, [channel, payload]), this.#waitingBucket);
  }

  /** Grants to other claims of this process are hints here: they are rechecked. */
  #onReplies(replies: readonly string[], pushes: readonly string[]): void {
    if (replies.some((reply) => reply.startsWith("w"))) this.#listener?.onWaiting();
    for (const push of pushes) this.#events.pushed(push, false);
  }

  #callRenew(batch: readonly ClaimRow[]): Promise<readonly string[]> {
    const values = [joinIds(batch), this.#inbox, this.#maxTtlMs];
    const bucket = toOneBucket(batch);
    if (this.#listener === null) return this.#callFunction(this.#statements.renew, values, bucket);
    return this.#listener.callWithProbe((probe) =>
      probe === null
        ? this.#callFunction(this.#statements.renew, values, bucket)
        : this.#callFunction(this.#statements.renewAndProbe, [...values, probe], bucket),
    );
  }

  /** The lines of its reply. `bucket`: the one whose row it locks; null: none or several. */
  async #callFunction(
    statement: string,
    values: readonly SqlValue[],
    bucket: number | null = null,
    kind?: CallKind,
  ): Promise<readonly string[]> {
    return readLines(await this.#calls.run(this.#toWork(statement, values), bucket, kind));
  }

  /**
   * A pool may hand on a connection whose settings another user has changed, or a pooler one of another client. The
   * call is repeated, once, in a transaction without them.
   */
  #toWork(statement: string, values: readonly SqlValue[]): (connection: CallConnection) => Promise<SqlResult> {
    const runPlain = (connection: CallConnection): Promise<SqlResult> => queryPlain(connection, statement, values);
    if (this.#isAlwaysPlain) return runPlain;
    return (connection) =>
      connection.remainingMs < MIN_REMAINING_MS
        ? runPlain(connection)
        : connection.query(statement, values).catch((error: unknown) => {
            if (!isSettingError(error)) throw error;
            return runPlain(connection);
          });
  }
}

/** A function's reply. Its column may have another name: a client can have renamed it. */
function readReply({ rows }: SqlResult): string {
  const [reply] = Object.values(rows[0] ?? {});
  if (typeof reply !== "string") throw new Error("postgres: a function returned no text");
  return reply;
}

function readLines(result: SqlResult): readonly string[] {
  return readReply(result).split("\n");
}

/** The rows of a reply in JSON, which the server may have broken into lines. */
function parseRows(lines: readonly string[]): readonly SqlRow[] {
  return JSON.parse(lines.join("\n")) as readonly SqlRow[];
}

function createStatements(location: PostgresLocation): Statements {
  const call = (name: string, count: number): string => {
    const parameters = Array.from({ length: count }, (_, index) => `$${index + 1}`).join(", ");
    return expandStatement(`select {${name}}(${parameters}) as reply`, location);
  };
  return {
    claim: call("claim", 13),
    renew: call("renew", 3),
    renewAndProbe: expandStatement("select {renew}($1, $2, $3) as reply, pg_catalog.pg_notify($2, $4)", location),
    release: call("release", 6),
    detach: call("detach", 3),
    revoke: call("revoke", 6),
    check: expandStatement("select {check_data_loss}($1)::text as reply", location),
    restore: call("restore", 3),
    list: call("list", 5),
    readOwned: call("read_owned", 1),
  };
}

/** As JSON: keys and labels may contain any separator. */
function encodeRestored(rows: readonly RestoreRow[], toRecall: (row: ClaimRow) => number): string {
  return JSON.stringify(
    rows.map((row) => {
      const { id, key, bucket, permits, limit, ttlMs, token, tokenCount, floor, wait, label } = row;
      return {
        ...{ id, key, bucket, permits, limit, wait, label: label.replaceAll("\0", ""), recall: toRecall(row) },
        ...{ ttl: ttlMs, token: String(token), tokens: tokenCount, floor: String(floor) },
      };
    }),
  );
}

function joinIds(rows: readonly OwnedRow[]): string {
  return rows.map(({ id }) => id).join();
}

/** Each once, in ascending order. */
function joinBuckets(rows: readonly OwnedRow[]): string {
  return [...new Set(rows.map(({ bucket }) => bucket))].sort((left, right) => left - right).join();
}

function toListedRow(row: SqlRow): ListedRow {
  const text = (name: string): string => String(row[name]);
  return {
    id: text("id"),
    key: text("key"),
    arrival: text("arrival"),
    permits: text("permits"),
    limit: text("permit_limit"),
    ttlMs: text("ttl"),
    tokenCount: text("token_count"),
    floor: text("floor"),
    wait: row.wait === true,
    label: text("label"),
    token: text("token"),
    remainingMs: text("remaining"),
    ageMs: text("age"),
    heldMs: text("held"),
  };
}
