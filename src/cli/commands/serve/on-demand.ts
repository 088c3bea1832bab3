/** `holdfast serve --on-demand`: the server that a client of this user starts when nobody listens. */

import { closeSync, fstatSync, ftruncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Server } from "../../../server/server.ts";
import { acquireFileLock } from "../../../util/file-lock.ts";
import { prepareSocketPath, resolveUserDirectory } from "../../../util/user-directory.ts";
import { listInheritable } from "../../inherited-descriptors.ts";
import { waitForShutdown } from "./shutdown.ts";

/** How long it stays when nobody needs it. */
const IDLE_MS = 600_000;
/** The log is cut when it grows beyond this. */
const MAX_LOG_BYTES = 262_144;
/** Where it says how its start went; see drivers/server/autostart.ts. */
const READY_DESCRIPTOR = 3;

/**
 * Of several only the one that the kernel elects stays. It keeps nothing of its starter, which waits for one word on a descriptor of its own.
 */
export async function serveOnDemand(idleMs: number = IDLE_MS): Promise<number> {
  process.umask(0o077);
  // descriptors of the starter's
  for (const descriptor of listInheritable(READY_DESCRIPTOR)) closeSync(descriptor);
  try {
    const directory = resolveUserDirectory();
    const socket = prepareSocketPath(directory);
    if ((await acquireFileLock(join(directory, "election"))) === null) {
      notifyStarter("taken");
      return 0;
    }
    const { serve } = await import("../../../server/server.ts");
    const server = await serve({ listen: `unix:${socket}`, state: join(directory, "state"), log });
    // it has nothing to reload, and what hangs up on it ends the user's session: the next client starts it again
    const shutdown = waitForShutdown(server, { idleMs, onHangup: "ends", log });
    log(`listening on ${socket}`);
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

async function closeServer(server: Server, isLost: boolean): Promise<number> {
  try {
    await server.close();
    return isLost ? 1 : 0;
  } catch (error) {
    log("the server has stopped", error);
    return 1;
  }
}

/** One line of the log, with an error in words. */
function log(message: string, error?: unknown): void {
  logLine(error === undefined ? message : `${message}: ${error instanceof Error ? error.message : String(error)}`);
}

/** Standard error is the log file, which must not grow for ever. */
function logLine(text: string): void {
  const { size } = fstatSync(2);
  if (size > MAX_LOG_BYTES) ftruncateSync(2);
  writeSync(2, `${new Date().toISOString()} ${process.pid} ${text}\n`);
}

/** Says how the start went and lets go of the descriptor. Nobody may be listening any more. */
function notifyStarter(word: string): void {
  try {
    // by hand it may have been started without one, and then the number may be something else
    if (!fstatSync(READY_DESCRIPTOR).isSocket()) return;
    writeSync(READY_DESCRIPTOR, `${word}\n`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EPIPE" && code !== "EBADF") throw error;
    if (code === "EBADF") return;
  }
  closeSync(READY_DESCRIPTOR);
}
