/**
 * The watchdog of a run: a small `sh` process (watchdog.sh) that reads a pipe from the wrapper, the process of
 * `holdfast run`. However the wrapper dies, the pipe ends. Then the watchdog ends the command and all processes below
 * it before the lease can end. Only the watchdog sends signals to processes below the command, so the wrapper uses it
 * for that, too, while both are alive.
 *
 * When the server ends, and with it the keep-session connection of the watchdog, a new watchdog with a connection to
 * the next server replaces the old one. So, on a Unix socket, the lock is kept until the watchdog has ended the
 * command, even if the command has closed the connection that it inherited. A watchdog that was killed is not replaced;
 * one that was stopped is continued.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { hasChildEnded } from "../../../os/process-info.ts";
import { END_LINE } from "../../../server/runs/run-file-format.ts";
import type { RunFile } from "../../../server/runs/run-file-writer.ts";
import { CommandError, toFileLimitError } from "../../errors.ts";
import { watchdogEnvironment } from "./nested-runs.ts";
import WATCHDOG_SCRIPT from "./watchdog.sh";

/** The pause between attempts to connect to the next server. */
const RECONNECT_INTERVAL_MS = 100;
/** A watchdog that ends within this time after a signal was given to it may not have passed it on. */
const FORWARD_MS = 500;

/** The wrapper's side of the watchdog. */
export interface Watchdog {
  /** False if it was killed: then the wrapper must send signals itself. */
  readonly isAlive: boolean;
  /** Sets the process id of the command. */
  watch(pid: number): void;
  /** The watchdog ends the command after `ms`, unless the wrapper calls this again before. */
  setDeadline(ms: number): void;
  /**
   * Passes a signal to the command and all processes below it. `sendDirectly`: called if the watchdog may have died
   * before it did so.
   */
  forwardSignal(name: NodeJS.Signals, sendDirectly: () => void): void;
  /** Sends TERM now and KILL after `ms`; settles when all processes below the command are gone. */
  terminate(ms: number): Promise<void>;
  /** Ends the watchdog, because the command has ended by itself. Settles when the watchdog is gone. */
  dismiss(): Promise<void>;
}

/** The options of a watchdog. */
export interface WatchdogOptions {
  /** Does the command have its own process group? */
  readonly hasOwnGroup: boolean;
  readonly graceMs: number;
  /** Identifies the command by its environment if the wrapper dies while it starts the command. */
  readonly token: string;
  /**
   * The watchdog keeps this connection open until it ends, so that the session lasts as long. Null on a store without
   * such connections.
   */
  readonly keepSessionSocket: Socket | null;
  /** Opens another such connection, to the next server. */
  readonly reopenKeepSession: () => Promise<KeepSessionSocket | null>;
  /**
   * The watchdog inherits the lock of this file, and removes the file when no process of the run is left. Null if the
   * server does not restore runs.
   */
  readonly runFile: RunFile | null;
}

/**
 * Starts the watchdog. Null if there is no sh: then only the keep-session connection of the command keeps the lock.
 * @throws CommandError internal, if there is neither sh nor a keep-session connection; output
 */
export async function startWatchdog(options: WatchdogOptions): Promise<Watchdog | null> {
  let watchedPid: number | null = null;
  /**
   * When the watchdog ends the command unless it hears from the wrapper. A new watchdog must know it at once: the
   * wrapper may be stopped at any time.
   */
  let leaseEndsAt: number | null = null;
  let isStopped = false;
  let shell: Shell;
  try {
    shell = await startShell(options, options.keepSessionSocket);
  } catch (cause) {
    if (cause instanceof CommandError) throw cause;
    if (options.keepSessionSocket !== null) return null;
    throw (
      toFileLimitError(cause) ??
      new CommandError("internal", "could not start sh, which runs the watchdog; nothing was run", { cause })
    );
  }
  if (options.keepSessionSocket !== null) replaceOnClose(options.keepSessionSocket);

  /** The server ends the connection when it ends itself. */
  function replaceOnClose(socket: Socket): void {
    socket.once("close", replaceShell);
    // nothing arrives on it, but the socket reports its end only while it is being read
    socket.resume().unref();
  }

  function replaceShell(): void {
    if (isStopped) return;
    options.reopenKeepSession().then(
      (next) => {
        if (next === null) return;
        replaceOnClose(next.socket);
        startShell(options, next.socket).then(adopt, () => undefined);
      },
      () => setTimeout(replaceShell, RECONNECT_INTERVAL_MS).unref(),
    );
  }

  /**
   * Invariant: all but the current shell are killed, each when the next one is armed, so that one timer runs at a time.
   */
  function adopt(next: Shell): void {
    if (isStopped) return void next.kill();
    const previous = shell;
    shell = next;
    if (watchedPid !== null) next.send(`command ${watchedPid}`);
    if (leaseEndsAt !== null) next.send(`lease ${formatSeconds(leaseEndsAt - performance.now())}`);
    void previous.kill();
  }

  return {
    get isAlive() {
      return shell.isAlive();
    },
    watch(pid) {
      watchedPid = pid;
      shell.send(`command ${pid}`);
      // the timer that runs was started without the process id, and would have to search for the command
      if (leaseEndsAt !== null) shell.send(`lease ${formatSeconds(leaseEndsAt - performance.now())}`);
    },
    setDeadline(ms) {
      leaseEndsAt = performance.now() + ms;
      shell.send(`lease ${formatSeconds(ms)}`);
    },
    forwardSignal(name, sendDirectly) {
      const { exited } = shell;
      const sentAt = performance.now();
      shell.send(`signal ${name.slice(3)}`);
      void exited.then(() => performance.now() - sentAt < FORWARD_MS && sendDirectly());
    },
    terminate(ms) {
      isStopped = true;
      return shell.terminate(ms);
    },
    dismiss() {
      isStopped = true;
      return shell.kill();
    },
  };
}

/** One process of watchdog.sh. */
interface Shell {
  readonly exited: Promise<void>;
  isAlive(): boolean;
  send(line: string): void;
  /** Ends the command, TERM now and KILL after `ms`; settles when the shell has ended. */
  terminate(ms: number): Promise<void>;
  /** Ends the shell and its timer, and leaves the command alone. Settles when the shell is gone. */
  kill(): Promise<void>;
}

/** @throws Error (ENOENT) if there is no sh; StateError if it cannot be added to the run file */
async function startShell(options: WatchdogOptions, keepSessionSocket: Socket | null): Promise<Shell> {
  const { hasOwnGroup, graceMs, token, runFile } = options;
  const args = [hasOwnGroup ? "group" : "tree", formatSeconds(graceMs), token, runFile?.path ?? "", END_LINE.trimEnd()];
  if (runFile?.isKeptByServer === true) args.push("keep");
  const sh = spawn("sh", ["-c", WATCHDOG_SCRIPT, "holdfast-watchdog", ...args], {
    stdio: ["pipe", "ignore", "ignore", keepSessionSocket ?? "ignore", runFile?.descriptor ?? "ignore"],
    detached: true,
    cwd: "/",
    env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", ...watchdogEnvironment(process.env) },
  });
  let state: "running" | "ending" | "ended" = "running";
  const exited = new Promise<void>((resolve) => sh.once("exit", () => resolve()));
  await waitUntilStarted(sh);
  try {
    runFile?.addProcess("watchdog", sh.pid as number);
  } catch (error) {
    killGroup(sh);
    throw error;
  }
  sh.once("exit", () => {
    // its timer must not end a command whose lease was renewed since, nor keep the lock of the run file and the session
    if (state === "running") killGroup(sh);
    state = "ended";
  });
  const { stdin } = sh;
  // the "exit" event reports a dead watchdog; without a listener the EPIPE would end the wrapper
  stdin?.on("error", () => undefined);
  const send = (line: string): void => {
    stdin?.write(`${line}\n`);
    // one that was stopped reads nothing, and the run would wait for it
    if (state !== "ended") signalGroup(sh, "SIGCONT");
  };
  return {
    exited,
    // the event comes later than the end
    isAlive: () => state !== "ended" && !hasChildEnded(sh.pid as number),
    send,
    terminate(ms) {
      if (state === "running") state = "ending";
      send(`end ${formatSeconds(ms)}`);
      return exited;
    },
    kill() {
      // only once: later the id may belong to another group
      if (state === "running") {
        state = "ending";
        killGroup(sh);
      }
      return exited;
    },
  };
}

function waitUntilStarted(child: ChildProcess): Promise<void> {
  if (child.pid !== undefined) return Promise.resolve();
  return new Promise((_, reject) => child.once("error", reject));
}

/** Kills the shell and its timer. If only the shell was killed, its timer still runs. */
function killGroup(shell: ChildProcess): void {
  signalGroup(shell, "SIGKILL");
}

/** Sends a signal to the shell and its timer, which have their own process group. */
function signalGroup({ pid }: ChildProcess, name: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function formatSeconds(ms: number): string {
  return (Math.max(ms, 0) / 1_000).toFixed(3);
}
