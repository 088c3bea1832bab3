/**
 * The dialect of MariaDB and MySQL: each verb is one CALL of a procedure (sql/), which is one transaction. Its clock is
 * in clock.ts.
 */

import type { Check } from "../../../spi/driver.ts";
import { systemClock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { resolveMaxTtlMs } from "../../data-loss-guard.ts";
import { decodeFlags } from "../../reply-codec.ts";
import type { CallConnection } from "../call.ts";
import { ANSWER_IN_TIME } from "../call.ts";
import type { CallKind } from "../call-kinds.ts";
import { Calls } from "../calls.ts";
import type { SqlClient, SqlConnection, SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
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
import { BUCKET_COUNT, toBucket, toOneBucket } from "../schema.ts";
import { createServerDialect } from "../server-dialect.ts";
import { formatCallSettings } from "./call-settings.ts";
import { diagnose } from "./diagnostics.ts";
import { breaksConnection, explainError, isReadOnlyError, leavesTransactionOpen, readErrorNumber } from "./errors.ts";
import { expandStatement } from "./migration.ts";
import type { MysqlLocation, MysqlOptions } from "./options.ts";
import { resolveLocation } from "./options.ts";
import { prepareDatabase, readDefaultDatabase } from "./prepare-database.ts";
import { formatRows } from "./row-format.ts";

const ID_CHARS = 26;
/** The highest number of a BIGINT. A floor above it is refused like any that is too high. */
const MAX_BIGINT = 2n ** 63n - 1n;
/** No byte of UTF-8 is so high. */
const ABOVE_ALL_KEYS: Uint8Array = Buffer.from([0xff]);

/** 0 would mean no limit. */
const LEAST_SECONDS = 0.001;

/** `ownsClient`: close() closes the client. */
export function createMysqlDialect(
  createClient: () => Promise<SqlClient>,
  ownsClient: boolean,
  options: MysqlOptions,
): Dialect {
  const createSession = async (events: DialectEvents): Promise<MysqlSession> =>
    new MysqlSession(await createClient(), ownsClient, options, events);
  return createServerDialect("mysql", createSession, explainError);
}

class MysqlSession implements DialectSession {
  readonly hasPush = false;
  readonly pushesRecalls = false;
  readonly #client: SqlClient;
  readonly #ownsClient: boolean;
  readonly #options: MysqlOptions;
  readonly #events: DialectEvents;
  readonly #calls: Calls;
  readonly #stopWatching: () => void;
  /** The longest wait for a lock, in seconds: a call whose client has given up should not stay in the server. */
  readonly #lockWaitSeconds: number;
  /** 0: guardDataLoss is off. */
  readonly #maxTtlMs: number;
  /** Identifies claims of this process: its releases return their grants. */
  readonly #inbox: string = randomId();
  /** The database is known once it is prepared. */
  #location: MysqlLocation;
  /** The statement of each procedure. Procedures are called when the database is known. */
  readonly #texts = new Map<string, string>();

  constructor(client: SqlClient, ownsClient: boolean, options: MysqlOptions, events: DialectEvents) {
    const { commandTimeoutMs = DEFAULT_COMMAND_TIMEOUT_MS } = options;
    this.#client = client;
    this.#ownsClient = ownsClient;
    this.#options = options;
    this.#events = events;
    this.#location = resolveLocation(options);
    this.#maxTtlMs = resolveMaxTtlMs(options.guardDataLoss) ?? 0;
    this.#lockWaitSeconds = Math.max(Math.floor(commandTimeoutMs / 1_000), 1);
    this.#calls = this.#createCalls(commandTimeoutMs);
    this.#stopWatching = client.watchBreaks(() => events.disconnected());
  }

  #createCalls(timeoutMs: number): Calls {
    return new Calls(this.#client, {
      driverName: "mysql",
      clock: this.#options.clock ?? systemClock,
      timeoutMs,
      isBrokenBy: breaksConnection,
      isReadOnly: isReadOnlyError,
      onBreak: () => this.#events.disconnected(),
      explain: explainError,
    });
  }

  /** Verifies the server, and creates what is missing. */
  async prepare(): Promise<void> {
    const { createTables = true, connectTimeout } = this.#options;
    // creating tables may take longer than a call
    const calls = this.#createCalls(toConnectTimeoutMs(connectTimeout));
    const database = this.#location.database ?? (await readDefaultDatabase(this.#client, calls));
    this.#location = { ...this.#location, database };
    await calls.run((connection) => prepareDatabase(connection, { ...this.#location, database }, createTables));
    await this.#rehearse();
  }

  /** A claim and its release: what the server refuses later, for lack of a right or by a setting, is refused now. */
  async #rehearse(): Promise<void> {
    const key = "holdfast-open";
    const row: ClaimRow & ReleaseRow = {
      id: randomId(),
      key,
      bucket: toBucket(key),
      permits: 1,
      limit: 2 ** 30, // shared with processes that open at the same time
      ttlMs: 0, // over when it begins, so that no list shows it
      tokenCount: 1,
      floor: 0n,
      wait: false,
      label: "",
      recall: false,
      hasUnansweredClaim: false,
    };
    await this.claim(row);
    await this.release([row]);
  }

  async claim(row: ClaimRow): Promise<string> {
    const { id, key, bucket, permits, limit, ttlMs, tokenCount, floor, wait, label, recall } = row;
    const values = [
      this.#inbox,
      this.#lockWaitSeconds,
      id,
      Buffer.from(key),
      bucket,
      permits,
      limit,
      ttlMs,
      tokenCount,
      floor > MAX_BIGINT ? MAX_BIGINT : floor,
      wait,
      recall,
      Buffer.from(label),
      this.#maxTtlMs,
    ];
    const result = await this.#calls.runClaim(id, bucket, this.#toWork("claim", values));
    return result === null ? "n" : String(result.rows[0]?.reply);
  }

  async renew(rows: readonly ClaimRow[]): Promise<readonly string[]> {
    const values = [this.#inbox, this.#lockWaitSeconds, formatRows(rows, ({ recall }) => recall), this.#maxTtlMs];
    const [row] = await this.#call("renew", values, toOneBucket(rows));
    const replies = new Map<string, string>();
    for (const line of String(row?.replies).split("\n")) replies.set(line.slice(0, ID_CHARS), line.slice(ID_CHARS + 1));
    return rows.map(({ id }) => {
      const reply = replies.get(id);
      if (reply === undefined) throw new Error("mysql: the server did not answer for every claim");
      return reply;
    });
  }

  release(rows: readonly ReleaseRow[]): Promise<ReleaseReply> {
    return this.#calls.release(rows, (batch) => {
      const records = formatRows(batch, ({ hasUnansweredClaim }) => hasUnansweredClaim);
      const work = this.#toWork("release", [this.#inbox, this.#lockWaitSeconds, records, this.#maxTtlMs]);
      return async (connection) => {
        const {
          rows: [reply],
        } = await work(connection);
        // no reply: every claim was there, and no claim of this process was granted
        if (reply === undefined) return { flags: batch.map(() => true), pushes: [] };
        return decodeFlags(reply.reply, batch.length, "mysql");
      };
    });
  }

  async detach(rows: readonly ClaimRow[], remainingMs: number | null): Promise<readonly boolean[]> {
    const values = [this.#lockWaitSeconds, remainingMs, formatRows(rows)];
    const [row] = await this.#call("detach", values, toOneBucket(rows));
    return decodeFlags(row?.reply, rows.length, "mysql").flags;
  }

  /** One call each: operators revoke few, and keys differ in length. */
  async revoke(rows: readonly RevokeRow[]): Promise<readonly boolean[]> {
    const flags: boolean[] = [];
    const pushes: string[] = [];
    for (const { key, bucket, token, removesRow } of rows) {
      const values = [this.#inbox, this.#lockWaitSeconds, Buffer.from(key), bucket, token, removesRow, this.#maxTtlMs];
      const [row] = await this.#call("revoke", values, bucket);
      const reply = decodeFlags(row?.reply, 1, "mysql");
      flags.push(...reply.flags);
      pushes.push(...reply.pushes);
    }
    // only this process learns of it at once; others when they renew. A hint: the claim may have been answered since
    for (const push of pushes) this.#events.pushed(push, false);
    return flags;
  }

  async list({ prefix, key, max, after }: ListRequest): Promise<readonly ListedRow[]> {
    const from = Buffer.from(key ?? prefix ?? "");
    // the keys that begin with the prefix; or the one key, which the next byte string follows
    const to = Buffer.concat([from, key === undefined ? ABOVE_ALL_KEYS : Buffer.alloc(1)]);
    const cursor = [Buffer.from(after?.key ?? ""), after?.arrival ?? null];
    const buckets = key === undefined ? [0, BUCKET_COUNT - 1] : [toBucket(key), toBucket(key)];
    const rows = await this.#call("list", [from, to, ...cursor, max, ...buckets]);
    return rows.map(toListedRow);
  }

  async readOwned(): Promise<readonly OwnedRow[]> {
    const rows = await this.#call("read_owned", [this.#inbox]);
    return rows.map(({ id, key_hex, bucket, ttl }) => ({
      id: String(id),
      key: decodeHex(key_hex),
      bucket: Number(bucket),
      ttlMs: Number(ttl),
    }));
  }

  async checkDataLoss(): Promise<number> {
    const [row] = await this.#call("check_data_loss", [this.#maxTtlMs]);
    return Number(row?.reply);
  }

  /** One call each: few are lost at once, and keys differ in length. */
  async restore(rows: readonly RestoreRow[]): Promise<readonly string[]> {
    const replies: string[] = [];
    for (const { id, key, bucket, permits, limit, ttlMs, tokenCount, floor, wait, label, token } of rows) {
      const values = [
        ...[this.#inbox, this.#lockWaitSeconds, this.#maxTtlMs, id, Buffer.from(key), bucket, permits, limit, ttlMs],
        ...[tokenCount, floor > MAX_BIGINT ? MAX_BIGINT : floor, wait, Buffer.from(label), token],
      ];
      const [row] = await this.#call("restore", values, bucket, "release");
      replies.push(String(row?.reply));
    }
    return replies;
  }

  diagnose(): Promise<readonly Check[]> {
    return this.#calls.run((connection) => diagnose(connection, this.#location));
  }

  async close(): Promise<void> {
    this.#stopWatching();
    this.#calls.close();
    if (this.#ownsClient) await this.#client.close();
  }

  /** `bucket`: the one whose row it locks; null: none or several. */
  async #call(
    procedure: string,
    values: readonly SqlValue[],
    bucket: number | null = null,
    kind?: CallKind,
  ): Promise<readonly SqlRow[]> {
    return (await this.#calls.run(this.#toWork(procedure, values), bucket, kind)).rows;
  }

  #toWork(procedure: string, values: readonly SqlValue[]): (connection: CallConnection) => Promise<SqlResult> {
    let text = this.#texts.get(procedure);
    if (text === undefined) {
      const placeholders = values.map(() => "?").join(",");
      text = expandStatement(`${formatCallSettings(procedure)} call {${procedure}}(${placeholders})`, this.#location);
      this.#texts.set(procedure, text);
    }
    const call = text;
    return (connection) => {
      const seconds = Math.max((connection.remainingMs * ANSWER_IN_TIME) / 1_000, LEAST_SECONDS);
      return callOrRollBack(connection, call, [seconds, this.#lockWaitSeconds, ...values]);
    };
  }
}

/**
 * A call that the server cancels leaves its transaction open, also on a connection that is not closed because it is the
 * user's.
 */
async function callOrRollBack(
  connection: Pick<SqlConnection, "query">,
  text: string,
  values: readonly SqlValue[],
): Promise<SqlResult> {
  try {
    return await connection.query(text, values);
  } catch (error) {
    if (readErrorNumber(error) !== 0 && leavesTransactionOpen(error)) {
      await connection.query("rollback").catch(() => undefined);
    }
    throw error;
  }
}

function toListedRow(row: SqlRow): ListedRow {
  return {
    id: String(row.id),
    key: decodeHex(row.key_hex),
    arrival: String(row.arrival),
    permits: String(row.permits),
    limit: String(row.permit_limit),
    ttlMs: String(row.ttl),
    tokenCount: String(row.token_count),
    floor: String(row.floor),
    wait: String(row.wait) === "1",
    label: decodeHex(row.label_hex),
    token: String(row.token),
    remainingMs: String(row.remaining),
    ageMs: String(row.age),
    heldMs: String(row.held),
  };
}

function decodeHex(text: unknown): string {
  return Buffer.from(String(text), "hex").toString();
}
