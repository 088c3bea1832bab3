/** Decides when a server started by a command stops, and handles its signals. */

import { constants } from "node:os";
import { isatty } from "node:tty";
import type { Logger } from "../../../server/logger.ts";
import type { Server } from "../../../server/server.ts";

/** How often an idle server is checked during its idle timeout. */
const CHECKS_PER_IDLE = 10;
const MAX_CHECK_MS = 30_000;

export interface ShutdownOptions {
  /** The server stops after this time without clients and claims; undefined: never. */
  readonly idleMs: number | undefined;
  /** What SIGHUP does. */
  readonly onHangup: "stop" | "reload";
  readonly log: Logger;
}

/** What must be known of a server to stop it. */
type StoppableServer = Pick<Server, "reload" | "ownershipLost" | "stats">;

/** Why a server stops. */
export interface ShutdownReason {
  readonly reason: string;
  /** The server has lost its socket or the lock on its state, and has ended itself. */
  readonly isLost: boolean;
  /** The terminal was closed: the process must end by the signal, because Node aborts on exit without its terminal. */
  readonly isHangup: boolean;
}

/** Settles when the server must stop. A second signal after that ends the process at once. */
export function waitForShutdown(
  server: StoppableServer,
  { idleMs, onHangup, log }: ShutdownOptions,
): Promise<ShutdownReason> {
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
      // if the terminal was closed, isatty() is false now: the hang-up means stop, not reload
      if (onHangup === "stop") return stopBySignal("SIGHUP");
      if (terminal !== undefined && !isatty(terminal)) return stopBySignal("SIGHUP", true);
      log("received SIGHUP: reloading credentials and certificates");
      // reload() logs its failures itself
      server.reload().catch(() => undefined);
    });
    void server.ownershipLost.then((reason) => stop(reason, true));
    if (idleMs !== undefined) monitorIdle(server, idleMs, stop);
  });
}

function monitorIdle(server: StoppableServer, idleMs: number, stop: (reason: string) => void): void {
  let lastBusyAt = performance.now();
  setInterval(
    () => {
      const { sessions, claims } = server.stats();
      if (sessions > 0 || claims > 0) lastBusyAt = performance.now();
      else if (performance.now() - lastBusyAt >= idleMs) stop("idle timeout reached");
    },
    Math.min(Math.max(idleMs / CHECKS_PER_IDLE, 10), MAX_CHECK_MS),
  );
}
