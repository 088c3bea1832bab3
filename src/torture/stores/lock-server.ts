/** Our own lock server with its state on disk, on a Unix socket or on TCP. */

import { connect } from "node:net";
import { join } from "node:path";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import { createDatabaseProcess } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import type { Address } from "../tcp-proxy.ts";
import type { ChildCommand } from "../worker-pool.ts";
import type { StartedStore } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

/** @param holdfast the command of this program */
export async function startLockServer(
  directory: string,
  holdfast: ChildCommand,
  transport: "socket" | "tcp",
): Promise<StartedStore> {
  const port = await freePort();
  const address = transport === "tcp" ? { host: "127.0.0.1", port } : { path: join(directory, "socket") };
  const url = "path" in address ? `holdfast+unix:${address.path}` : `holdfast://127.0.0.1:${port}`;
  const [program, ...args] = holdfast;
  const server = createDatabaseProcess({
    name: "the lock server",
    command: [program, ...args, "serve", "--listen", url, "--state", join(directory, "state")],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /internal error/g,
    isReady: () => isListening(address),
  });
  await server.start();
  return {
    name: `Holdfast server ${PACKAGE_VERSION}${transport === "tcp" ? " on TCP" : ""}`,
    url,
    inject: injectInto(server),
    close: () => server.crash(),
  };
}

function isListening(address: Address): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
