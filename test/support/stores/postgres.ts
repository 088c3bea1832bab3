/** A real PostgreSQL for tests: the installed programs on a free port, its data in a temporary folder, ended by its pid. */

import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { firstAnswer, startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { makeDataFolder } from "./data-template.ts";
import type { DatabaseServer, ServerOptions, TestDatabase } from "./sql-database.ts";
import { createDatabaseServer } from "./sql-database.ts";

const VERSIONS = "/usr/lib/postgresql";
const PACKAGES = ["postgresql"];
/** PostgreSQL refuses to run as root; so it runs as the user with the fewest rights. */
const NOBODY = 65_534;
const ADMIN = "postgres";
/** The administrator needs no password; every other role needs its own. */
const HOST_RULES = [
  `host all,replication ${ADMIN} 127.0.0.1/32 trust`,
  "host all all 127.0.0.1/32 scram-sha-256",
  "",
].join("\n");
const STARTUP_VERSION = 196_608;

/** No test of ours may end in one of these: locks are taken in one order, and the server does not crash by itself. */
const LOGGED_FAULT = /^.*(?:deadlock detected|PANIC:|terminated by signal (?!9:)\d+).*$/gm;

/** A copy of another server, which follows it without keeping its commits waiting. */
export interface PostgresStandby extends DatabaseServer {
  /** From now on it is a server of its own. */
  promote(): Promise<void>;
}

/** Starts a server on a free port of the loopback. Its administrator is "postgres", without a password. */
export function startPostgres(options: ServerOptions = {}): Promise<DatabaseServer> {
  installPostgres();
  return startServer(options, (data, user) => {
    const initOptions = ["-U", ADMIN, "-A", "trust", "-N", "-E", "UTF8", "--no-locale"];
    const program = join(programFolder(), "initdb");
    makeDataFolder(data, ["-D", data], { name: "postgres", program, args: initOptions, user });
    writeFileSync(join(data, "pg_hba.conf"), HOST_RULES);
  });
}

/** Copies a running server and starts the copy as its standby. */
export async function startPostgresStandby(
  primary: DatabaseServer,
  options: ServerOptions = {},
): Promise<PostgresStandby> {
  const standby = await startServer(options, (data, user) => {
    const identity = user === undefined ? {} : { uid: user, gid: user };
    const from = ["-h", "127.0.0.1", "-p", String(primary.port), "-U", ADMIN];
    const copyOptions = ["-D", data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"];
    execFileSync(join(programFolder(), "pg_basebackup"), [...from, ...copyOptions], {
      ...identity,
      cwd: "/",
      stdio: "pipe",
    });
  });
  return Object.defineProperties(
    { promote: async () => void (await standby.query("select pg_promote(true, 30)")) },
    Object.getOwnPropertyDescriptors(standby),
  ) as PostgresStandby;
}

async function startServer(
  options: ServerOptions,
  makeData: (folder: string, user: number | undefined) => void,
): Promise<DatabaseServer> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-postgres-"));
  const user = unprivilegedUser();
  // its parents are readable, so that another user may enter
  chmodSync(folder, 0o755);
  if (user !== undefined) chownSync(folder, user, user);
  const data = join(folder, "data");
  makeData(data, user);
  const settings = Object.entries({
    listen_addresses: "127.0.0.1",
    // a path of a test may be too long for one
    unix_socket_directories: "",
    shared_buffers: "32MB",
    max_connections: "200",
    // with fsync off, commits are still written to the operating system before they are acknowledged
    ...(options.isSynced === true ? {} : { fsync: "off", full_page_writes: "off" }),
    ...options.settings,
  }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "PostgreSQL",
    command: [join(programFolder(), "postgres"), "-D", data, "-p", String(port), ...settings],
    log: join(folder, "log"),
    environment: options.environment ?? {},
    user,
    stopSignal: "SIGINT",
    faults: LOGGED_FAULT,
    isReady: () => acceptsStartup(port, ADMIN),
  }));
  const url = postgresUrl(port, ADMIN);
  return createDatabaseServer({
    process: server,
    name: "PostgreSQL",
    port,
    folder,
    url,
    query: queryPostgres,
    createDatabase: (name) => createDatabase(port, name),
  });
}

/** Why there is no PostgreSQL here and none can be had; null if there is. */
export function postgresUnavailableReason(): string | null {
  if (findProgramFolder() !== null || canInstall()) return null;
  return "PostgreSQL is not installed, and only root on Debian or Ubuntu could install it";
}

/** Runs a statement over a connection of its own. */
export async function queryPostgres(
  url: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Record<string, unknown>[]> {
  const client = postgres(url, { max: 1, fetch_types: false, onnotice: () => undefined });
  try {
    return [...(await client.unsafe(text, values as never[]))];
  } finally {
    await client.end({ timeout: 1 });
  }
}

export function postgresUrl(port: number, database: string, user: string = ADMIN, password: string = ""): string {
  const identity = password === "" ? user : `${user}:${encodeURIComponent(password)}`;
  return `postgres://${identity}@127.0.0.1:${port}/${database}`;
}

/** Whether it lets the administrator in: one that is starting, or recovering, answers with an error. */
export async function acceptsStartup(port: number, database: string): Promise<boolean> {
  const text = Buffer.from(`user\0${ADMIN}\0database\0${database}\0\0`);
  const message = Buffer.alloc(8 + text.length);
  message.writeInt32BE(message.length, 0);
  message.writeInt32BE(STARTUP_VERSION, 4);
  text.copy(message, 8);
  return (await firstAnswer(port, message)).toString("latin1", 0, 1) === "R";
}

/** Whom servers run as that refuse to run as root; undefined: as the tests do. */
export function unprivilegedUser(): number | undefined {
  return process.getuid?.() === 0 ? NOBODY : undefined;
}

async function createDatabase(port: number, name: string): Promise<TestDatabase> {
  const [url, admin] = [postgresUrl(port, name), postgresUrl(port, ADMIN)];
  await queryPostgres(admin, `create database ${name}`);
  return {
    name,
    url,
    urlOf: (user, password) => postgresUrl(port, name, user, password),
    query: (text, values) => queryPostgres(url, text, values),
    drop: async () => void (await queryPostgres(admin, `drop database ${name} with (force)`)),
  };
}

export function installPostgres(): void {
  if (findProgramFolder() === null) installPackages(PACKAGES, "the PostgreSQL tests");
}

function programFolder(): string {
  const found = findProgramFolder();
  if (found === null) throw new Error(`no initdb below ${VERSIONS}`);
  return found;
}

/** Of the newest version. */
function findProgramFolder(): string | null {
  const versions = existsSync(VERSIONS) ? readdirSync(VERSIONS) : [];
  const folders = versions.sort((one, other) => Number(other) - Number(one)).map((name) => join(VERSIONS, name, "bin"));
  return folders.find((folder) => existsSync(join(folder, "initdb"))) ?? null;
}
