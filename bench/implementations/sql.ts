/** All implementations on databases, by name. */

import type { HoldKey, LockImplementation } from "../harness/closed-loop.ts";

interface SqlImplementation {
  /** @param address the url of the database */
  open(address: string): Promise<LockImplementation>;
  holdLocks?(address: string, ttl: number): Promise<HoldKey>;
}

// loaded only where they are needed: other cases' processes do without them
const loadHoldfast = (): Promise<typeof import("./sql-holdfast.ts")> => import("./sql-holdfast.ts");
const loadByHand = (): Promise<typeof import("./sql-by-hand.ts")> => import("./sql-by-hand.ts");
const loadThirdParty = (): Promise<typeof import("./sql-third-party.ts")> => import("./sql-third-party.ts");

/** The names of the implementations on one database. */
export interface SqlNames {
  readonly holdfast: string;
  /** The least that a lock in a table can cost: a statement that inserts, and one that deletes. */
  readonly floor: string;
  /** Locks that end with their connection, by our driver and called by hand; null: the database has none. */
  readonly advisory: { readonly holdfast: string; readonly byHand: string } | null;
  readonly thirdParties: readonly string[];
}

/** Two connections that hand a row over: the one commits and notifies, the other listens. */
export const NOTIFY_FLOOR = "commit and NOTIFY";

export const POSTGRES: SqlNames = {
  holdfast: "holdfast, PostgreSQL",
  floor: "insert and delete, PostgreSQL",
  advisory: { holdfast: "holdfast, advisory locks of PostgreSQL", byHand: "pg_advisory_lock by hand" },
  thirdParties: ["@verrou/core, PostgreSQL"],
};

export const MARIADB: SqlNames = {
  holdfast: "holdfast, MariaDB",
  floor: "insert and delete, MariaDB",
  advisory: { holdfast: "holdfast, GET_LOCK", byHand: "GET_LOCK by hand" },
  thirdParties: ["@verrou/core, MariaDB"],
};

export const SQLITE: SqlNames = {
  holdfast: "holdfast, SQLite",
  floor: "insert and delete, SQLite",
  advisory: null,
  thirdParties: ["@verrou/core, SQLite"],
};

const ALL = [POSTGRES, MARIADB, SQLITE];

const HOLDFAST: SqlImplementation = {
  open: async (address) => (await loadHoldfast()).openSqlHoldfast(address),
  holdLocks: async (address, ttl) => (await (await loadHoldfast()).openSqlHoldfast(address, { ttl })).acquire,
};

function assignAll(
  names: (sqlNames: SqlNames) => readonly string[],
  implementation: SqlImplementation,
): Record<string, SqlImplementation> {
  return Object.fromEntries(ALL.flatMap(names).map((name) => [name, implementation]));
}

export const SQL_IMPLEMENTATIONS: Readonly<Record<string, SqlImplementation>> = {
  ...assignAll(({ holdfast }) => [holdfast], HOLDFAST),
  ...assignAll(({ floor }) => [floor], { open: async (address) => (await loadByHand()).openTableFloor(address) }),
  ...assignAll(({ advisory }) => (advisory === null ? [] : [advisory.holdfast]), {
    open: async (address) => (await loadHoldfast()).openAdvisoryHoldfast(address),
  }),
  ...assignAll(({ advisory }) => (advisory === null ? [] : [advisory.byHand]), {
    open: async (address) => (await loadByHand()).openAdvisoryByHand(address),
  }),
  [NOTIFY_FLOOR]: { open: async (address) => (await loadByHand()).openNotifyFloor(address) },
  ...assignAll(({ thirdParties }) => thirdParties, {
    open: async (address) => (await loadThirdParty()).openSqlVerrou(address),
  }),
};
