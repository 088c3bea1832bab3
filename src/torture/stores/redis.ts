/** A Redis server that writes each change to its disk before it answers. */

import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { versionOf } from "./programs.ts";
import type { StartedStore } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

export async function startRedis(directory: string): Promise<StartedStore> {
  const version = versionOf("redis-server", ["--version"]);
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "Redis",
    command: [
      ...(["redis-server", "--port", String(port), "--bind", "127.0.0.1", "--dir", directory] as const),
      ...["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--logfile", ""],
    ],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /REDIS BUG REPORT/g,
    // not while it loads its data
    isReady: async () => (await firstAnswer(port, Buffer.from("PING\r\n"))).toString().startsWith("+PONG"),
  }));
  return {
    name: `Redis ${version}`,
    url: `redis://127.0.0.1:${port}`,
    inject: injectInto(server),
    close: () => server.crash(),
  };
}
