/** Our own lock server with its state on disk, on a Unix socket or on TCP. */

import { mkdirSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import type { PowerLossDisk } from "../disk/power-loss.ts";
import {
  createPowerLossDisk,
  losePower,
  powerLossUnavailableReason,
  removePowerLossDisk,
  rewriteTornSector,
} from "../disk/power-loss.ts";
import { createDatabaseProcess } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import type { Address } from "../tcp-proxy.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

const JOURNAL = "state/journal";

export async function startLockServer(
  { directory, holdfast, faults }: StoreSetup,
  transport: "socket" | "tcp",
): Promise<StartedStore> {
  const port = await freePort();
  const address = transport === "tcp" ? { host: "127.0.0.1", port } : { path: join(directory, "socket") };
  const url = "path" in address ? `holdfast+unix:${address.path}` : `holdfast://127.0.0.1:${port}`;
  const disk = createDisk(join(directory, "disk"), faults.includes("power-loss"));
  const [program, ...args] = holdfast;
  const server = createDatabaseProcess({
    name: "the lock server",
    command: [program, ...args, "serve", "--listen", url, "--state", join(directory, "disk", "state")],
    log: join(directory, "log"),
    environment: disk?.environment ?? {},
    stopSignal: "SIGTERM",
    faults: /internal error/g,
    isReady: () => isListening(address),
  });
  await server.start();
  const name = `Holdfast server ${PACKAGE_VERSION}${transport === "tcp" ? " on TCP" : ""}`;
  return {
    ...{ name, url },
    ...(transport === "socket" && { isOnUsersMachine: true }),
    faults: ["store-kill", "store-restart", "store-pause", ...(disk === null ? [] : (["power-loss"] as const))],
    inject: injectInto({
      name,
      servers: [server],
      async losePower(random, users) {
        if (disk === null) return;
        const { torn } = await losePower(disk, [server.pid, ...users], random);
        await server.crash();
        // the server relies on the disk to write this one whole; it refuses to start with a torn one
        for (const sector of torn) if (sector.path === JOURNAL && sector.sector === 0) rewriteTornSector(disk, sector);
      },
    }),
    async close() {
      await server.crash();
      if (disk !== null) removePowerLossDisk(disk);
    },
  };
}

/** Null: this run has no use for one, or there can be none here. */
function createDisk(folder: string, isWanted: boolean): PowerLossDisk | null {
  mkdirSync(folder, { mode: 0o700 });
  return isWanted && powerLossUnavailableReason() === null ? createPowerLossDisk(folder) : null;
}

/** Whether a server takes connections there. */
export function isListening(address: Address): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
