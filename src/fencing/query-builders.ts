/** Handles of query builders and object mappers: Kysely, Drizzle, Knex, Prisma and TypeORM. */

import type { Emitter } from "../drivers/sql/clients/emitter.ts";
import { ignoreErrors } from "../drivers/sql/clients/emitter.ts";
import type { Members } from "../drivers/sql/clients/members.ts";
import { hasMethods, readMembers } from "../drivers/sql/clients/members.ts";
import { insertPostgresValues } from "../drivers/sql/clients/postgres-protocol.ts";
import type { SqlResult } from "../drivers/sql/clients/types.ts";
import type { AdaptedHandle } from "./adapting.ts";
import { replaceParameters, returnsRows, toBuffer, toLiteral, toReturnedRows, toSqlResult } from "./adapting.ts";
import type { SqlDialect } from "./types.ts";

/** null: it is none of these. `dialect` is used where the handle does not show its own. */
export function adaptQueryBuilder(handle: unknown, dialect: SqlDialect | undefined): AdaptedHandle | null {
  const members = readMembers(handle);
  if (typeof handle === "function") return isKnex(members) ? adaptKnex(members as unknown as KnexLike) : null;
  if (hasMethods(members, "executeQuery", "getExecutor")) return adaptKysely(members as unknown as KyselyLike);
  if (hasMethods(readMembers(members.dialect), "escapeParam", "escapeName")) return adaptDrizzle(members, dialect);
  if (hasMethods(members, "$queryRawUnsafe", "$executeRawUnsafe")) {
    return adaptPrisma(members as unknown as PrismaLike, dialect);
  }
  if (isTypeOrm(members)) return adaptTypeOrm(members as unknown as TypeOrmLike);
  return null;
}

interface KyselyLike {
  readonly isTransaction: boolean;
  getExecutor(): {
    readonly adapter: { readonly supportsTransactionalDdl: boolean; readonly supportsReturning: boolean };
  };
  withoutPlugins(): KyselyLike;
  executeQuery(query: object): Promise<{ readonly rows: SqlResult["rows"]; readonly numAffectedRows?: bigint }>;
}

function adaptKysely(kysely: KyselyLike): AdaptedHandle {
  const { supportsTransactionalDdl, supportsReturning } = kysely.getExecutor().adapter;
  const withoutReturning = supportsTransactionalDdl ? null : "mysql";
  const withReturning = supportsTransactionalDdl ? "postgres" : "sqlite";
  return {
    dialect: supportsReturning ? withReturning : withoutReturning,
    library: "kysely",
    async query(text, values = []) {
      const parameters = values.map(toBuffer);
      const query = { kind: "RawNode", sqlFragments: [text], parameters: [] };
      const queryId = { queryId: "holdfast" };
      // a plugin may rename columns
      const result = await kysely.withoutPlugins().executeQuery({ sql: text, parameters, query, queryId });
      return { rows: result.rows, affectedCount: Number(result.numAffectedRows ?? 0) };
    },
    // false for a single connection, too, on which the user may have begun a transaction
    isInTransaction: () => kysely.isTransaction || null,
  };
}

/** It takes text without parameters, or an object of its own class: so values become literals. */
function adaptDrizzle(database: Members, given: SqlDialect | undefined): AdaptedHandle {
  const dialect = detectDrizzleDialect(database) ?? given ?? null;
  return {
    dialect,
    library: "drizzle",
    async query(text, values = []) {
      const literal =
        dialect === "postgres"
          ? insertPostgresValues(text, values)
          : replaceParameters(text, values, (value) => toLiteral(value, dialect as "mysql" | "sqlite"));
      if (dialect !== "sqlite") return toSqlResult(await (database.execute as RawQuery).call(database, literal));
      if (!returnsRows(text)) return toSqlResult(await (database.run as RawQuery).call(database, literal));
      const { rows } = toSqlResult(await (database.all as RawQuery).call(database, literal));
      return toReturnedRows(text, rows);
    },
    isInTransaction: () => hasMethods(database, "rollback") || null,
    // over pg, the client of the transaction
    expectEndOfSession() {
      const { client } = readMembers(database.session);
      if (hasMethods(readMembers(client), "query", "on", "listeners")) ignoreErrors(client as Emitter);
    },
  };
}

type RawQuery = (text: string) => unknown;

function detectDrizzleDialect(database: Members): SqlDialect | null {
  const dialect = database.dialect as { escapeParam(index: number): string; escapeName(name: string): string };
  if (dialect.escapeParam(0) === "$1") return "postgres";
  if (dialect.escapeParam(0) !== "?") return null;
  if (dialect.escapeName("a") === "`a`") return "mysql";
  return hasMethods(database, "run", "all") ? "sqlite" : null;
}

interface KnexLike {
  readonly isTransaction?: boolean;
  readonly client: { readonly dialect: string };
  raw(text: string, values: readonly unknown[]): PromiseLike<unknown>;
}

const KNEX_DIALECTS: Readonly<Record<string, SqlDialect>> = {
  postgresql: "postgres",
  mysql: "mysql",
  sqlite3: "sqlite",
};

function isKnex(members: Members): boolean {
  return hasMethods(members, "raw", "transaction") && typeof readMembers(members.client).dialect === "string";
}

function adaptKnex(knex: KnexLike): AdaptedHandle {
  return {
    dialect: KNEX_DIALECTS[knex.client.dialect] ?? null,
    library: "knex",
    async query(text, values = []) {
      // each of its parameters is a question mark, on PostgreSQL too
      const ordered: unknown[] = [];
      const marked = replaceParameters(text, values, (value) => {
        ordered.push(toBuffer(value));
        return "?";
      });
      return toSqlResult(await knex.raw(marked, ordered));
    },
    isInTransaction: () => knex.isTransaction === true || null,
  };
}

/** Only the client of an interactive transaction has it, in versions of Prisma where it can begin another one. */
const PRISMA_SCOPE: unique symbol = Symbol.for("prisma.client.transaction.scope_context");

interface PrismaLike {
  readonly $transaction?: unknown;
  readonly _activeProvider?: unknown;
  readonly [PRISMA_SCOPE]?: unknown;
  $queryRawUnsafe(text: string, ...values: readonly unknown[]): Promise<unknown>;
  $executeRawUnsafe(text: string, ...values: readonly unknown[]): Promise<number>;
}

const PRISMA_DIALECTS: Readonly<Record<string, SqlDialect>> = {
  postgresql: "postgres",
  postgres: "postgres",
  mysql: "mysql",
  sqlite: "sqlite",
};

function adaptPrisma(client: PrismaLike, given: SqlDialect | undefined): AdaptedHandle {
  const provider = client._activeProvider;
  return {
    dialect: (typeof provider === "string" ? PRISMA_DIALECTS[provider] : undefined) ?? given ?? null,
    library: "prisma",
    async query(text, values = []) {
      if (!returnsRows(text)) return toSqlResult(await client.$executeRawUnsafe(text, ...values));
      const { rows } = toSqlResult(await client.$queryRawUnsafe(text, ...values));
      return toReturnedRows(text, rows);
    },
    // where transactions cannot be nested, the client of one has no $transaction
    isInTransaction: () => client[PRISMA_SCOPE] !== undefined || typeof client.$transaction !== "function",
  };
}

/** A QueryRunner, an EntityManager or a DataSource. */
interface TypeOrmLike {
  readonly queryRunner?: TypeOrmLike;
  readonly isTransactionActive?: boolean;
  readonly connection?: { readonly options?: { readonly type?: string } };
  readonly dataSource?: { readonly options?: { readonly type?: string } };
  readonly options?: { readonly type?: string };
  query(text: string, values: readonly unknown[], isStructured?: boolean): Promise<unknown>;
}

const TYPEORM_DIALECTS: Readonly<Record<string, SqlDialect>> = {
  postgres: "postgres",
  cockroachdb: "postgres",
  mysql: "mysql",
  mariadb: "mysql",
  sqlite: "sqlite",
  "better-sqlite3": "sqlite",
};

function isTypeOrm(members: Members): boolean {
  if (!hasMethods(members, "query")) return false;
  const isRunner = typeof members.isTransactionActive === "boolean" && hasMethods(members, "startTransaction");
  return isRunner || hasMethods(members, "getRepository", "transaction");
}

function adaptTypeOrm(handle: TypeOrmLike): AdaptedHandle {
  const runner = handle.queryRunner ?? handle;
  const { type } = handle.connection?.options ?? handle.dataSource?.options ?? handle.options ?? {};
  return {
    dialect: TYPEORM_DIALECTS[type ?? ""] ?? null,
    library: "typeorm",
    async query(text, values = []) {
      const isRunner = typeof runner.isTransactionActive === "boolean";
      const result = await runner.query(text, values.map(toBuffer), ...(isRunner ? [true] : []));
      return isRunner ? toStructuredResult(result) : toSqlResult(result);
    },
    isInTransaction: () => runner.isTransactionActive === true || null,
  };
}

function toStructuredResult(result: unknown): SqlResult {
  const { records, affected, raw } = result as {
    readonly records?: SqlResult["rows"];
    readonly affected?: number;
    readonly raw?: unknown;
  };
  return { rows: records ?? toSqlResult(raw).rows, affectedCount: Number(affected ?? 0) };
}
