/** A real PgBouncer for tests, in front of a PostgreSQL of theirs, in transaction mode unless told otherwise. */

import { chmodSync, chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { acceptsStartup, postgresUrl, unprivilegedUser } from "./postgres.ts";

const PROGRAM = "/usr/sbin/pgbouncer";
/** Its own, not those of a server that is starting, which it repeats. */
const LOGGED_FAULT = /^.*\] (?:FATAL|CRASH).*$/gm;

export interface PgBouncer extends DatabaseProcess {
  readonly port: number;
  /** The url of a database of the server behind it, for its administrator. */
  urlOf(database: string): string;
  /** The url of its own console: RECONNECT, PAUSE, SHOW SERVERS. */
  readonly consoleUrl: string;
  dispose(): Promise<void>;
}

interface PgBouncerOptions {
  /** Default: "transaction". */
  readonly mode?: "session" | "transaction" | "statement";
  /** Connections to the server for each database. Default: 20. */
  readonly poolSize?: number;
  /** Further lines of its configuration. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** `serverPort`: of the PostgreSQL behind it. */
export async function startPgBouncer(serverPort: number, options: PgBouncerOptions = {}): Promise<PgBouncer> {
  installPgBouncer();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-pgbouncer-"));
  // it refuses to run as root, and its user has to read its files
  const user = unprivilegedUser();
  chmodSync(folder, 0o755);
  if (user !== undefined) chownSync(folder, user, user);
  const config = join(folder, "pgbouncer.ini");
  writeFileSync(join(folder, "users"), '"postgres" ""\n');
  const { port, process: bouncer } = await startOnFreePort((port) => {
    writeFileSync(config, configText(port, serverPort, folder, options));
    return {
      name: "PgBouncer",
      command: [PROGRAM, config],
      log: join(folder, "log"),
      environment: {},
      user,
      stopSignal: "SIGINT",
      faults: LOGGED_FAULT,
      isReady: () => acceptsStartup(port, "postgres"),
    };
  });
  return {
    ...bouncer,
    get pid() {
      return bouncer.pid;
    },
    port,
    urlOf: (database) => postgresUrl(port, database),
    consoleUrl: postgresUrl(port, "pgbouncer"),
    async dispose() {
      await bouncer.crash();
      const faults = bouncer.loggedFaults();
      rmSync(folder, { recursive: true, force: true });
      if (faults.length > 0) throw new Error(`the log of PgBouncer:\n  ${faults.join("\n  ")}`);
    },
  };
}

export function installPgBouncer(): void {
  if (!existsSync(PROGRAM)) installPackages(["pgbouncer"], "the PostgreSQL tests");
}

/** Why there is no PgBouncer here and none can be had; null if there is. */
export function pgBouncerUnavailableReason(): string | null {
  if (existsSync(PROGRAM) || canInstall()) return null;
  return "PgBouncer is not installed, and only root on Debian or Ubuntu could install it";
}

function configText(port: number, serverPort: number, folder: string, options: PgBouncerOptions): string {
  const settings = Object.entries({
    listen_addr: "127.0.0.1",
    listen_port: String(port),
    unix_socket_dir: "",
    auth_type: "trust",
    auth_file: join(folder, "users"),
    admin_users: "postgres",
    pool_mode: options.mode ?? "transaction",
    default_pool_size: String(options.poolSize ?? 20),
    max_client_conn: "1000",
    ...options.settings,
  }).map(([name, value]) => `${name} = ${value}`);
  return ["[databases]", `* = host=127.0.0.1 port=${serverPort}`, "[pgbouncer]", ...settings, ""].join("\n");
}
