/**
 * Checks the settings of a PostgreSQL server that matter to locks: for `holdfast doctor` and for warnings of open().
 */

import type { Check } from "../../../spi/driver.ts";
import type { Calls } from "../calls.ts";
import type { SqlRow } from "../clients/types.ts";
import type { PostgresWarning } from "./options.ts";
import { readRow } from "./plain-transaction.ts";
import { checkVacuum } from "./vacuum-check.ts";

/** The version that the tests use. */
const TESTED_VERSION = 15;
/** Share of the connections above which refusals are likely soon. */
const NEARLY_FULL = 0.9;

/** How pushes reach this process. none: the client is a single connection. unused: no claim has waited yet. */
export type PushState = "none" | "unused" | "receiving" | "unreachable";

interface PostgresCheck extends Check {
  readonly name: PostgresWarning;
}

const READ_SETTINGS = `select pg_catalog.current_setting('server_version') as version,
  pg_catalog.pg_is_in_recovery() as is_standby,
  (select reset_val from pg_catalog.pg_settings where name operator(pg_catalog.=) 'default_transaction_isolation') as isolation,
  pg_catalog.current_setting('fsync') as fsync,
  pg_catalog.current_setting('full_page_writes') as full_page_writes,
  pg_catalog.current_setting('synchronous_standby_names') as synchronous_standbys,
  pg_catalog.current_setting('max_connections')::int as max_connections,
  (select pg_catalog.count(*)::int from pg_catalog.pg_stat_activity where backend_type operator(pg_catalog.=) 'client backend') as connections,
  (select pg_catalog.count(*)::int from pg_catalog.pg_stat_replication) as standbys`;
const SETTING_NAMES: readonly string[] = [
  "version",
  "is_standby",
  "isolation",
  "fsync",
  "full_page_writes",
  "synchronous_standbys",
  "max_connections",
  "connections",
  "standbys",
];

const RECHECKED = "waiting claims are rechecked every 25 to 250 ms instead";

/** Notifications do not arrive. */
export const UNREACHABLE = {
  message: `notifications do not arrive, as behind a pooler in transaction mode; ${RECHECKED}`,
  hint: "connect Holdfast to the server itself, or through a pooler in session mode",
};

export async function diagnose(calls: Calls, pushState: PushState): Promise<readonly PostgresCheck[]> {
  const row = (await readRow(calls, READ_SETTINGS, SETTING_NAMES)) ?? {};
  return [
    checkVersion(row),
    checkRole(row),
    ...checkFailover(row),
    checkIsolation(row),
    checkDurability(row),
    checkConnections(row),
    await checkVacuum(calls),
    checkPush(pushState),
  ];
}

function checkVersion({ version }: SqlRow): PostgresCheck {
  const name = "version";
  const message = `PostgreSQL ${version}`;
  if (Number.parseInt(String(version), 10) === TESTED_VERSION) return { status: "ok", name, message };
  return { status: "ok", name, message: `${message}; the functions are tested with ${TESTED_VERSION}` };
}

function checkRole({ is_standby: isStandby, standbys }: SqlRow): PostgresCheck {
  const name = "role";
  if (isStandby === true) {
    return { status: "fail", name, message: "this is a standby", hint: "connect to the primary server" };
  }
  const count = Number(standbys);
  return { status: "ok", name, message: `primary, with ${count} ${count === 1 ? "standby" : "standbys"}` };
}

/** How safe locks are when a standby is promoted; nothing: there is none. */
function checkFailover(row: SqlRow): PostgresCheck[] {
  if (Number(row.standbys) === 0) return [];
  const name = "failover";
  if (row.synchronous_standbys !== "") {
    return [{ status: "ok", name, message: "grants wait for a synchronous standby" }];
  }
  return [
    {
      status: "warn",
      name,
      message: "a promoted standby may lack the last grants, so a lock could be granted twice",
      hint: "set synchronous_standby_names, or fence your data",
    },
  ];
}

function checkIsolation({ isolation }: SqlRow): PostgresCheck {
  const name = "isolation";
  if (/^read (?:un)?committed$/.test(String(isolation))) {
    return { status: "ok", name, message: "calls run at read committed" };
  }
  return {
    status: "warn",
    name,
    message: `the default isolation level is ${isolation}: each call sets its own, and its statement is not prepared`,
    hint: "alter role ... set default_transaction_isolation = 'read committed'",
  };
}

function checkDurability(row: SqlRow): PostgresCheck {
  const name = "durability";
  const off = ["fsync", "full_page_writes"].filter((setting) => row[setting] === "off");
  if (off.length === 0) return { status: "ok", name, message: "a grant is on disk before it counts" };
  return {
    status: "warn",
    name,
    message: `${off.join(" and ")} off: a crash of the server may lose the last grants, so a lock could be granted twice`,
    hint: `set ${off.map((setting) => `${setting} = on`).join(", ")}`,
  };
}

function checkConnections({ connections, max_connections: maximum }: SqlRow): PostgresCheck {
  const name = "connections";
  const message = `${connections} of ${maximum} connections are in use`;
  if (Number(connections) < NEARLY_FULL * Number(maximum)) return { status: "ok", name, message };
  return { status: "warn", name, message, hint: "raise max_connections, or use smaller pools" };
}

function checkPush(state: PushState): PostgresCheck {
  const name = "push";
  switch (state) {
    case "receiving":
      return { status: "ok", name, message: "grants arrive as notifications" };
    case "unused":
      return { status: "ok", name, message: "no claim has waited yet, so nothing listens for notifications" };
    case "unreachable":
      return { status: "warn", name, ...UNREACHABLE };
    case "none":
      return {
        status: "warn",
        name,
        message: `the client is a single connection, so it cannot listen for notifications; ${RECHECKED}`,
        hint: "pass a Pool",
      };
  }
}
