/** When a server that was started by a command is to stop, and what else signals mean to it. */

import { constants } from "node:os";
import { isatty } from "node:tty";
import type { Logger } from "../../../server/config/logger.ts";
import type { Server } from "../../../server/server.ts";

/** A server with nobody on it is looked at so often before it leaves. */
const CHECKS_PER_IDLE = 10;
const MAX_CHECK_MS = 30_000;

export interface ShutdownOptions {
  /** It leaves when nobody has needed it for so long. */
  readonly idleMs: number | undefined;
  /** What SIGHUP does. */
  readonly onHangup: "ends" | "reloads";
  readonly log: Logger;
}

/** Why a server is to stop. */
export interface ShutdownReason {
  readonly reason: string;
  /** The server has ended by itself, since it is not the only one any more. */
  readonly isLost: boolean;
  /** Its terminal has gone: the process must end by the signal, since Node aborts when it exits without its terminal. */
  readonly isHangup: boolean;
}

/** Settles when the server is to stop. A second signal then ends the process at once. */
export function waitForShutdown(server: Server, { idleMs, onHangup, log }: ShutdownOptions): Promise<ShutdownReason> {
  return new Promise((resolve) => {
    let isStopping = false;
    const stop = (reason: string, isLost = false): void => resolve({ reason, isLost, isHangup: false });
    const stopBySignal = (name: NodeJS.Signals, isHangup = false): void => {
      if (isStopping) process.exit(128 + constants.signals[name]);
      isStopping = true;
      resolve({ reason: `received ${name}`, isLost: false, isHangup });
    };
    process.on("SIGTERM", () => stopBySignal("SIGTERM"));
    process.on("SIGINT", () => stopBySignal("SIGINT"));
    const terminal = [0, 1, 2].find((descriptor) => isatty(descriptor));
    process.on("SIGHUP", () => {
      // a terminal that has gone is no terminal any more, and took its server with it
      if (onHangup === "ends") return stopBySignal("SIGHUP");
      if (terminal !== undefined && !isatty(terminal)) return stopBySignal("SIGHUP", true);
      log("received SIGHUP: reading credentials and certificates again");
      // what could not be read was said in the log
      server.reload().catch(() => undefined);
    });
    void server.ownershipLost.then((reason) => stop(reason, true));
    if (idleMs !== undefined) monitorIdle(server, idleMs, stop);
  });
}

function monitorIdle(server: Server, idleMs: number, stop: (reason: string) => void): void {
  let lastBusyAt = performance.now();
  setInterval(
    () => {
      const { sessions, claims } = server.stats();
      if (sessions > 0 || claims > 0) lastBusyAt = performance.now();
      else if (performance.now() - lastBusyAt >= idleMs) stop("nobody has needed it for a while");
    },
    Math.min(Math.max(idleMs / CHECKS_PER_IDLE, 10), MAX_CHECK_MS),
  );
}
