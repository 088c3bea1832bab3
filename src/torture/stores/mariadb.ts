/** A MariaDB server. */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { systemProgram, versionOf } from "./programs.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectIntoServer } from "./store-process.ts";

/** The first byte after the head of a packet: version 10 of the protocol. An error would begin with 255. */
const [PACKET_HEAD, HANDSHAKE] = [4, 10];
const LOG_SIZE = "--innodb-log-file-size=32M";
/** In every server. */
const DATABASE = "mysql";

export async function startMariaDb({ directory }: StoreSetup): Promise<StartedStore> {
  const program = systemProgram("mariadbd");
  const version = versionOf(program, ["--version"]);
  const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];
  const folders = [`--datadir=${join(directory, "data")}`, `--tmpdir=${directory}`];
  const initArgs = ["--no-defaults", ...asRoot, LOG_SIZE, "--auth-root-authentication-method=normal", "--skip-test-db"];
  execFileSync(systemProgram("mariadb-install-db"), [...initArgs, ...folders], { stdio: "pipe" });
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "MariaDB",
    command: [
      ...([program, "--no-defaults", ...asRoot, ...folders, LOG_SIZE, `--port=${port}`] as const),
      ...["--bind-address=127.0.0.1", `--socket=${join(directory, "socket")}`, `--pid-file=${join(directory, "pid")}`],
      ...["--innodb-buffer-pool-size=64M", "--skip-log-bin"],
    ],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /Assertion|\[FATAL\]/g,
    isReady: async () => (await firstAnswer(port, Buffer.alloc(0)))[PACKET_HEAD] === HANDSHAKE,
  }));
  const name = `MariaDB ${version}`;
  return {
    ...{ name, url: `mariadb://root@127.0.0.1:${port}/${DATABASE}` },
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}
