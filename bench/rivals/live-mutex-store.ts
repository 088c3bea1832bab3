/** Starts the server of live-mutex, which keeps its locks in memory. */

import { createRequire } from "node:module";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { createDatabaseProcess } from "../../src/torture/processes/database-process.ts";
import { freePort } from "../../src/torture/processes/free-port.ts";
import type { StartedStore } from "../../src/torture/stores/started-store.ts";
import { injectIntoServer } from "../../src/torture/stores/store-process.ts";
import { readNpmVersion } from "../harness/versions.ts";

export async function startStore(directory: string): Promise<StartedStore> {
  const port = await freePort();
  const server = createDatabaseProcess({
    name: "live-mutex",
    command: [
      ...([process.execPath, fileURLToPath(new URL("live-mutex-server.child.js", import.meta.url))] as const),
      ...[String(port), createRequire(resolve("bench/package.json")).resolve("live-mutex")],
    ],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /uncaught/g,
    isReady: () => isListening(port),
  });
  await server.start();
  const name = `live-mutex server ${readNpmVersion("live-mutex")}`;
  return {
    ...{ name, url: `tcp://127.0.0.1:${port}` },
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}

function isListening(port: number): Promise<boolean> {
  return new Promise((settle) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => settle(true)).once("error", () => settle(false));
    socket.once("connect", () => socket.destroy());
  });
}
