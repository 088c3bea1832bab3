/** A real MariaDB for tests: the installed programs on a free port, its data in a temporary folder, ended by its pid. */

import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { firstAnswer, startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { makeDataFolder } from "./data-template.ts";
import type { DatabaseServer, ServerOptions, TestDatabase } from "./sql-database.ts";
import { createDatabaseServer } from "./sql-database.ts";

const SERVER = "/usr/sbin/mariadbd";
const INSTALLER = "/usr/bin/mariadb-install-db";
const PACKAGES = ["mariadb-server-core", "mariadb-client-core"];
/** A third of the usual one: it is copied for each server. */
const LOG_SIZE = "--innodb-log-file-size=32M";
const ADMIN = "root";
const ALWAYS_THERE = "mysql";
/** The first byte after the head of a packet: version 10 of the protocol. An error would begin with 255. */
const [PACKET_HEAD, HANDSHAKE] = [4, 10];

/** Locks are taken in one order, and the server does not crash by itself. */
const LOGGED_FAULT = /^.*(?:Transactions deadlock detected|got signal|Assertion|\[FATAL\]).*$/gm;

/** Starts a server on a free port of the loopback. Its administrator is "root", without a password. */
export async function startMariaDb(options: ServerOptions = {}): Promise<DatabaseServer> {
  installMariaDb();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-mariadb-"));
  const data = join(folder, "data");
  const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];
  const args = ["--no-defaults", ...asRoot, LOG_SIZE, "--auth-root-authentication-method=normal", "--skip-test-db"];
  // not the one of all: a server that starts deletes the temporary tables of another one there
  makeDataFolder(data, [`--datadir=${data}`, `--tmpdir=${folder}`], { name: "mariadb", program: INSTALLER, args });
  const settings = Object.entries({
    "bind-address": "127.0.0.1",
    socket: join(folder, "socket"),
    "pid-file": join(folder, "pid"),
    "innodb-buffer-pool-size": "64M",
    "max-connections": "300",
    // for LOGGED_FAULT
    "innodb-print-all-deadlocks": "ON",
    // the log is still written to the operating system before a commit is acknowledged
    ...(options.isSynced === true ? {} : { "innodb-flush-log-at-trx-commit": "2" }),
    ...options.settings,
  }).map(([name, value]) => `--${name}=${value}`);
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "MariaDB",
    command: [
      SERVER,
      "--no-defaults",
      ...asRoot,
      `--datadir=${data}`,
      `--tmpdir=${folder}`,
      `--port=${port}`,
      LOG_SIZE,
      "--skip-log-bin",
      ...settings,
    ],
    log: join(folder, "log"),
    environment: options.environment ?? {},
    stopSignal: "SIGTERM",
    faults: LOGGED_FAULT,
    isReady: async () => (await firstAnswer(port, Buffer.alloc(0)))[PACKET_HEAD] === HANDSHAKE,
  }));
  const url = mariaDbUrl(port, ALWAYS_THERE);
  return createDatabaseServer({
    process: server,
    name: "MariaDB",
    port,
    folder,
    url,
    query: queryMariaDb,
    createDatabase: (name) => createDatabase(port, name),
  });
}

/** The settings of a server that replicas can follow. */
export const REPLICATED = { "log-bin": "binary-log", "binlog-format": "ROW", "server-id": "1" } as const;

/** A server that follows another one. */
export interface MariaDbReplica extends DatabaseServer {
  /** Waits until it has executed what the primary has committed. */
  catchUp(): Promise<void>;
  /** Follows no more, as a replica that the primary cannot reach. */
  stopFollowing(): Promise<void>;
  /** Accepts writes from now on. */
  promote(): Promise<void>;
}

/** Starts a read-only replica of a server that was started with REPLICATED: it executes everything that the log has. */
export async function startMariaDbReplica(primary: DatabaseServer): Promise<MariaDbReplica> {
  const replica = await startMariaDb({ settings: { "server-id": "2", "read-only": "1" } });
  const source = `master_host = '127.0.0.1', master_port = ${primary.port}, master_user = '${ADMIN}'`;
  await replica.query(`change master to ${source}, master_connect_retry = 1`);
  await replica.query("start slave");
  return Object.defineProperties(
    {
      catchUp: async () => {
        const [primaryState] = await primary.query("select @@global.gtid_binlog_pos as position");
        const [state] = await replica.query("select master_gtid_wait(?, 10) as result", [primaryState?.position]);
        if (Number(state?.result) !== 0) throw new Error("the replica does not follow");
      },
      stopFollowing: async () => void (await replica.query("stop slave")),
      promote: async () => {
        await replica.query("stop slave");
        await replica.query("reset slave all");
        await replica.query("set global read_only = 0");
      },
    },
    Object.getOwnPropertyDescriptors(replica),
  ) as MariaDbReplica;
}

/** Why there is no MariaDB here and none can be had; null if there is. */
export function mariaDbUnavailableReason(): string | null {
  if (isInstalled() || canInstall()) return null;
  return "MariaDB is not installed, and only root on Debian or Ubuntu could install it";
}

/** Runs a statement over a connection of its own. VARBINARY columns come as Buffer. */
export async function queryMariaDb(
  url: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Record<string, unknown>[]> {
  const client = await createConnection({ uri: url, supportBigNumbers: true, bigNumberStrings: true });
  try {
    const [rows] = await client.query(text, values as unknown[]);
    return Array.isArray(rows) ? (rows as Record<string, unknown>[]) : [];
  } finally {
    await client.end();
  }
}

function mariaDbUrl(port: number, database: string, user: string = ADMIN, password: string = ""): string {
  const identity = password === "" ? user : `${user}:${encodeURIComponent(password)}`;
  return `mysql://${identity}@127.0.0.1:${port}/${database}`;
}

async function createDatabase(port: number, name: string): Promise<TestDatabase> {
  const [url, admin] = [mariaDbUrl(port, name), mariaDbUrl(port, ALWAYS_THERE)];
  await queryMariaDb(admin, `create database ${name}`);
  return {
    name,
    url,
    urlOf: (user, password) => mariaDbUrl(port, name, user, password),
    query: (text, values) => queryMariaDb(url, text, values),
    drop: async () => void (await queryMariaDb(admin, `drop database ${name}`)),
  };
}

export function installMariaDb(): void {
  if (!isInstalled()) installPackages(PACKAGES, "the MariaDB tests");
}

function isInstalled(): boolean {
  return existsSync(SERVER) && existsSync(INSTALLER);
}
