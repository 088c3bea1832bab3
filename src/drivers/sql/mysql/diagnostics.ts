/** Checks the settings of a server that matter to locks: for `holdfast doctor` and for warnings in open(). */

import type { Check } from "../../../spi/driver.ts";
import type { SqlConnection } from "../clients/types.ts";
import { expandStatement } from "./migration.ts";
import type { MysqlLocation, MysqlWarning } from "./options.ts";
import { checkPurge } from "./purge-check.ts";
import type { ServerVariables } from "./server-variables.ts";
import { readVariables, withPlainSession } from "./server-variables.ts";

/** A check that open() warns of unless its result is good. */
interface MysqlCheck<Name extends MysqlWarning = MysqlWarning> extends Check {
  readonly name: Name;
}

/** Share of the connections above which refusals are likely soon. */
const NEARLY_FULL = 0.9;
/** Expired rows from which on something is wrong: each claim removes one that it meets. */
const MANY_LEFTOVERS = 10_000;

export async function diagnose(
  connection: Pick<SqlConnection, "query">,
  location: MysqlLocation,
): Promise<readonly Check[]> {
  return withPlainSession(connection, async () => {
    const variables = await readVariables(connection);
    return [
      checkVersion(variables),
      await checkRole(connection, variables),
      checkDurability(variables),
      checkCluster(variables),
      await checkConnections(connection, variables),
      await checkPurge(connection, variables),
      await checkLeftovers(connection, location),
    ];
  });
}

export function checkVersion({ product, get }: ServerVariables): MysqlCheck<"version"> {
  const message = `${product} ${get("version")}`;
  if (product === "MariaDB") return { status: "ok", name: "version", message };
  return { status: "unknown", name: "version", message: `${message}: the driver is tested with MariaDB only` };
}

/** open() refuses a read-only server; it may have become one since. */
export async function checkRole(
  connection: Pick<SqlConnection, "query">,
  variables: ServerVariables,
): Promise<MysqlCheck<"role">> {
  const name = "role";
  const isReadOnly = ["read_only", "super_read_only", "innodb_read_only"].some(variables.isOn);
  if (isReadOnly) {
    const hint = "connect to the primary server, which keeps the locks";
    return { status: "fail", name, message: "the server is read-only", hint };
  }
  if (!(await isReplica(connection, variables))) return { status: "ok", name, message: "the server accepts writes" };
  const message =
    "the server is a replica, although it accepts writes: clients of its primary do not see the locks here";
  return {
    status: "warn",
    name,
    message,
    hint: "connect all processes to the same server, and set read_only on the others",
  };
}

async function isReplica(connection: Pick<SqlConnection, "query">, { product }: ServerVariables): Promise<boolean> {
  if (product === "MariaDB") {
    // every user may read it
    const { rows } = await connection.query("show global status like 'Slaves_running'");
    return Number(rows[0]?.Value) > 0;
  }
  // needs the right REPLICATION CLIENT, and MySQL 8.0.22
  const { rows } = await connection.query("show replica status").catch(() => ({ rows: [] }));
  return rows.length > 0;
}

function checkDurability({ get }: ServerVariables): MysqlCheck {
  const name = "durability";
  const setting = get("innodb_flush_log_at_trx_commit");
  if (setting === "1" || setting === "3")
    return { status: "ok", name, message: "locks survive a crash of the server's machine" };
  const lost = setting === "0" ? "a crash of the server" : "a crash of the server's machine";
  const message = `innodb_flush_log_at_trx_commit is ${setting}: ${lost} loses the locks of the last second and grants them to others`;
  return { status: "warn", name, message, hint: "set innodb_flush_log_at_trx_commit to 1" };
}

export function checkCluster({ isOn, get }: ServerVariables): MysqlCheck<"cluster"> {
  const name = "cluster";
  const isGroup = get("group_replication_group_name") !== "";
  if (!isOn("wsrep_on") && !isGroup)
    return { status: "ok", name, message: "a single server, or a primary with replicas" };
  const kind = isGroup ? "group replication" : "Galera";
  const message = `this is a node of a cluster (${kind}, untested): nodes have clocks of their own, and calls on different nodes fail when they conflict at commit`;
  return { status: "warn", name, message, hint: "send the calls of all processes to the same node" };
}

export async function checkConnections(
  connection: Pick<SqlConnection, "query">,
  { get }: ServerVariables,
): Promise<MysqlCheck<"connections">> {
  const name = "connections";
  const { rows } = await connection.query("show global status like 'Threads_connected'");
  const [count, max] = [Number(rows[0]?.Value), Number(get("max_connections"))];
  if (!(max > 0)) return { status: "unknown", name, message: `${count} connections in use` };
  const message = `${count} of ${max} connections in use`;
  if (count < NEARLY_FULL * max) return { status: "ok", name, message };
  return { status: "warn", name, message, hint: "raise max_connections, or use smaller pools" };
}

async function checkLeftovers(connection: Pick<SqlConnection, "query">, location: MysqlLocation): Promise<MysqlCheck> {
  const name = "leftovers";
  const text = `select count(*) as count from (select 1 from {claims} where expires <= {now} limit ${MANY_LEFTOVERS}) as expired`;
  const { rows } = await connection.query(expandStatement(text, location));
  const count = Number(rows[0]?.count);
  const message = `${count}${count === MANY_LEFTOVERS ? " or more" : ""} expired rows of claims`;
  if (count < MANY_LEFTOVERS) return { status: "ok", name, message };
  const hint = "many processes died, or locks were never released; later claims remove their rows";
  return { status: "warn", name, message, hint };
}
