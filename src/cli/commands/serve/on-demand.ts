/** `holdfast serve --on-demand`: the server that a client starts if no server of this user is running. */

import { closeSync, fstatSync, ftruncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import { acquireFileLock } from "../../../os/file-lock.ts";
import { prepareSocketPath, resolveUserDirectory } from "../../../os/user-directory.ts";
import type { Server } from "../../../server/server.ts";
import { formatServerUrl } from "../../../util/server-url.ts";
import { listInheritable } from "../../inherited-descriptors.ts";
import { waitForShutdown } from "./shutdown.ts";

/** The server stops after this time without clients and claims. */
const IDLE_MS = 600_000;
/** A longer log is emptied. */
const MAX_LOG_BYTES = 262_144;
/** The descriptor on which the server reports the result of its start; see drivers/server/autostart.ts. */
const READY_DESCRIPTOR = 3;

/**
 * Serves until the server is idle. If several servers start at once, a file lock lets only one of them continue. The
 * server keeps no descriptor of its starter, which waits for one word on READY_DESCRIPTOR.
 */
export async function serveOnDemand(idleMs: number = IDLE_MS): Promise<number> {
  process.umask(0o077);
  // an inherited pipe, for example of `out=$(holdfast run ...)`, would stay open as long as this server runs
  for (const descriptor of listInheritable(READY_DESCRIPTOR)) closeInherited(descriptor);
  try {
    const directory = resolveUserDirectory();
    const socket = prepareSocketPath(directory);
    if ((await acquireFileLock(join(directory, "election"))) === null) {
      notifyStarter("taken");
      return 0;
    }
    const { serve } = await import("../../../server/server.ts");
    const server = await serve({ listen: formatServerUrl({ path: socket }), state: join(directory, "state"), log });
    // it has nothing to reload, so a hang-up stops it: the user's session ends. The next client starts it again.
    const shutdown = waitForShutdown(server, { idleMs, onHangup: "stop", log });
    log(`listening on ${server.addresses[0]}`);
    notifyStarter("ready");
    const { reason, isLost } = await shutdown;
    log(`stopping: ${reason}`);
    return await closeServer(server, isLost);
  } catch (error) {
    log("could not start", error);
    notifyStarter((error as Error).message);
    return 1;
  }
}

/** Deno reports EBADF: it closes only what it has opened itself. */
function closeInherited(descriptor: number): void {
  try {
    closeSync(descriptor);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EBADF") throw error;
  }
}

async function closeServer(server: Server, isLost: boolean): Promise<number> {
  try {
    await server.close();
    return isLost ? 1 : 0;
  } catch (error) {
    log("the server has stopped", error);
    return 1;
  }
}

/** Logs a message and the message of an error. */
function log(message: string, error?: unknown): void {
  logLine(error === undefined ? message : `${message}: ${error instanceof Error ? error.message : String(error)}`);
}

/** Standard error is the log file, which must not grow without bound. */
function logLine(text: string): void {
  const { size } = fstatSync(2);
  if (size > MAX_LOG_BYTES) ftruncateSync(2);
  writeSync(2, `${new Date().toISOString()} ${process.pid} ${text}\n`);
}

/** Reports the result of the start and closes the descriptor. The starter may have ended already. */
function notifyStarter(word: string): void {
  try {
    // a server started by hand has no such descriptor, or uses the number for something else
    if (!fstatSync(READY_DESCRIPTOR).isSocket()) return;
    writeSync(READY_DESCRIPTOR, `${word}\n`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EPIPE" && code !== "EBADF") throw error;
    if (code === "EBADF") return;
  }
  closeSync(READY_DESCRIPTOR);
}
