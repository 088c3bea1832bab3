/** When a server that was started by a command is to stop, and what else signals mean to it. */

import { constants } from "node:os";
import { isatty } from "node:tty";
import type { Log } from "../server/logging.ts";
import type { Server } from "../server/serve.ts";

/** A server with nobody on it is looked at so often before it leaves. */
const IDLE_LOOKS = 10;
const LONGEST_LOOK_MS = 30_000;

export interface EndOptions {
  /** It leaves when nobody has needed it for so long. */
  readonly idleMs: number | undefined;
  /** What SIGHUP does. */
  readonly hangup: "ends" | "reloads";
  readonly log: Log;
}

/** Why a server is to stop. */
export interface End {
  readonly why: string;
  /** The server has ended by itself, since it is not the only one any more. */
  readonly lost: boolean;
  /** Its terminal has gone: the process must end by the signal, since Node aborts when it exits without its terminal. */
  readonly hangup: boolean;
}

/** Settles when the server is to stop. A second signal then ends the process at once. */
export function untilOver(server: Server, { idleMs, hangup, log }: EndOptions): Promise<End> {
  return new Promise((resolve) => {
    let ending = false;
    const over = (why: string, lost = false): void => resolve({ why, lost, hangup: false });
    const end = (name: NodeJS.Signals, isGone = false): void => {
      if (ending) process.exit(128 + constants.signals[name]);
      ending = true;
      resolve({ why: `received ${name}`, lost: false, hangup: isGone });
    };
    process.on("SIGTERM", () => end("SIGTERM"));
    process.on("SIGINT", () => end("SIGINT"));
    const terminal = [0, 1, 2].find((descriptor) => isatty(descriptor));
    process.on("SIGHUP", () => {
      // a terminal that has gone is no terminal any more, and took its server with it
      if (hangup === "ends") return end("SIGHUP");
      if (terminal !== undefined && !isatty(terminal)) return end("SIGHUP", true);
      log("received SIGHUP: reading credentials and certificates again");
      // what could not be read was said in the log
      server.reload().catch(() => undefined);
    });
    void server.lost.then((why) => over(why, true));
    if (idleMs !== undefined) watchIdle(server, idleMs, over);
  });
}

function watchIdle(server: Server, idleMs: number, over: (why: string) => void): void {
  let busyAt = performance.now();
  setInterval(
    () => {
      const { sessions, claims } = server.stats();
      if (sessions > 0 || claims > 0) busyAt = performance.now();
      else if (performance.now() - busyAt >= idleMs) over("nobody has needed it for a while");
    },
    Math.min(Math.max(idleMs / IDLE_LOOKS, 10), LONGEST_LOOK_MS),
  );
}
