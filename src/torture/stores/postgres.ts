/** A PostgreSQL server with a database of its own. */

import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { postgresProgram, versionOf } from "./programs.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectIntoServer } from "./store-process.ts";

/** PostgreSQL refuses to run as root; so it runs as the user with the fewest rights. */
const NOBODY = 65_534;
/** A request for TLS: a server that can be used answers with a letter. */
const TLS_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

export async function startPostgres({ directory }: StoreSetup): Promise<StartedStore> {
  const version = versionOf(postgresProgram("postgres"), ["--version"]);
  const user = process.getuid?.() === 0 ? NOBODY : undefined;
  const data = join(directory, "postgres");
  if (user !== undefined) {
    // its parents are readable, so that another user may enter
    for (const parent of [join(directory, ".."), directory]) chmodSync(parent, 0o755);
    chownSync(directory, user, user);
  }
  const identity = user === undefined ? {} : { uid: user, gid: user };
  const initArgs = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"];
  execFileSync(postgresProgram("initdb"), initArgs, { ...identity, cwd: "/", stdio: "pipe" });
  writeFileSync(join(data, "pg_hba.conf"), "host all postgres 127.0.0.1/32 trust\n");
  const settings = { listen_addresses: "127.0.0.1", unix_socket_directories: "", max_connections: "100" };
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "PostgreSQL",
    command: [
      ...([postgresProgram("postgres"), "-D", data, "-p", String(port)] as const),
      ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ],
    log: join(directory, "log"),
    environment: {},
    user,
    // ends the sessions of clients
    stopSignal: "SIGINT",
    faults: /PANIC:/g,
    isReady: async () => (await firstAnswer(port, TLS_REQUEST)).length === 1,
  }));
  const name = `PostgreSQL ${version}`;
  return {
    ...{ name, url: `postgres://postgres@127.0.0.1:${port}/postgres` },
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}
