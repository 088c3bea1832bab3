/**
 * The user's own server, started when nobody listens on its socket and started again when it died. Who of several
 * starters wins is the kernel's decision (util/file-lock.ts); everybody else's server leaves at once and waits for it.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, existsSync, fstatSync, ftruncateSync, openSync, readFileSync } from "node:fs";
// by another name: many who bundle have a "createRequire" in the banner of theirs
import { createRequire as requireFrom } from "node:module";
import { connect } from "node:net";
import { dirname, isAbsolute, join } from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Driver } from "../../spi/driver.ts";
import { prepareSocketPath, resolveUserDirectory } from "../../util/user-directory.ts";
import { server } from "./driver.ts";

/** What the server's output is cut to when it is started. */
const MAX_LOG_BYTES = 262_144;
/** The descriptor on which a server that is being started says how that went. */
const READY_FD = 3;
const POLL_INTERVAL_MS = 10;
/** Somebody else's server was about to listen, or one to leave: after so long another start is tried. */
const RESTART_INTERVAL_MS = 250;

/** How to reach the server on demand. */
export interface AutostartOptions {
  /** How long it may take to be reached for the first time, its start included, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** For claims that bring no label of their own. */
  readonly label: string;
}

/**
 * This user's own lock server as a store. Whenever it must be reached and nobody listens, it is started.
 * @throws FatalDriverError if the user's directory is refused; TypeError if its path is too long
 */
export function createAutostartDriver({ connectTimeoutMs, label }: AutostartOptions): Driver {
  const path = prepareSocketPath(resolveUserDirectory());
  return server({ path, connectTimeoutMs, label, beforeConnect: () => ensureServerRunning(connectTimeoutMs) });
}

/** Settles when a server listens, started by us if need be. */
async function ensureServerRunning(timeoutMs: number): Promise<void> {
  // looked at anew each time: what was ours may have been replaced
  const directory = resolveUserDirectory();
  const path = prepareSocketPath(directory);
  const deadline = performance.now() + timeoutMs;
  let nextStartAt = performance.now();
  for (;;) {
    const socketState = await probeSocket(path);
    if (socketState === "somebody") return;
    const now = performance.now();
    if (now >= deadline)
      throw new Error(`no lock server came up in ${directory} within ${timeoutMs} ms; see ${getLogPath(directory)}`);
    if (socketState === "nobody" && now >= nextStartAt) {
      await startOnce(directory, deadline - now);
      nextStartAt = performance.now() + RESTART_INTERVAL_MS;
    } else {
      await delay(POLL_INTERVAL_MS);
    }
  }
}

/** Only a refusal and a missing file mean that nobody listens: a full backlog (EAGAIN) is a living server. */
function probeSocket(path: string): Promise<"somebody" | "nobody" | "busy"> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve("somebody");
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNREFUSED" || error.code === "ENOENT") resolve("nobody");
      else if (error.code === "EAGAIN") resolve("busy");
      else reject(error);
    });
  });
}

let startInProgress: Promise<void> | null = null;

/** One start at a time in this process. Settles when a server is ready, or another one was faster. */
function startOnce(directory: string, timeoutMs: number): Promise<void> {
  startInProgress ??= spawnServer(directory, timeoutMs).finally(() => {
    startInProgress = null;
  });
  return startInProgress;
}

async function spawnServer(directory: string, timeoutMs: number): Promise<void> {
  const log = openLog(directory);
  let child: ChildProcess;
  try {
    // by way of a shell that ends at once, so that it is nobody's child: not ours, nor of who kills all below us
    child = spawn("sh", ["-c", '"$@" &', "sh", process.execPath, findServerProgram(), "serve", "--on-demand"], {
      cwd: "/",
      detached: true,
      stdio: ["ignore", log, log, "pipe"],
      env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", HOLDFAST_DIR: directory },
    });
  } finally {
    closeSync(log);
  }
  const message = await Promise.race([readReadyMessage(child), delay(timeoutMs, "nothing", { ref: false })]);
  // it was killed before it could say anything: our caller looks again, and has a bound
  if (message === "ready" || message === "taken" || message === "") return;
  throw new Error(`the lock server could not be started: it said ${message}; see ${getLogPath(directory)}`);
}

/** All that the server wrote on its ready descriptor, which it closes as soon as that is decided. */
function readReadyMessage(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    let message = "";
    const stream = child.stdio[READY_FD] as Readable | null | undefined;
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      message += chunk;
    });
    stream?.once("error", reject);
    stream?.once("close", () => resolve(message.trim()));
  });
}

function getLogPath(directory: string): string {
  return join(directory, "server.log");
}

function openLog(directory: string): number {
  const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW } = constants;
  const log = openSync(getLogPath(directory), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o600);
  if (fstatSync(log).size > MAX_LOG_BYTES) ftruncateSync(log);
  return log;
}

/** Where it may be from here: as built (one folder below dist), as compiled for the tests, as source. */
const SERVER_PROGRAM_PATHS: readonly string[] = ["../cli/main.js", "../../cli/main.js", "../../../dist/cli/main.js"];

/** The program that holds the server. A bundle by others has none; it may stand in a project that has the package. */
function findServerProgram(): string {
  const program = [...listSiblingPrograms(), ...listProjectPrograms()].find(
    (path) => existsSync(path) && isHoldfastProgram(path),
  );
  if (program === undefined) {
    throw new Error(
      "no lock server is running, and the program to start one is not here: run `holdfast serve`, give a url, or install the package where your bundle can find it",
    );
  }
  return program;
}

function listSiblingPrograms(): string[] {
  // a bundle in the form of CommonJS has none
  const moduleUrl = import.meta.url as string | undefined;
  return moduleUrl === undefined ? [] : SERVER_PROGRAM_PATHS.map((path) => fileURLToPath(new URL(path, moduleUrl)));
}

/** What the main program would import by our name. Never by way of the working directory, which may be anybody's. */
function listProjectPrograms(): string[] {
  const mainScript = process.argv[1];
  if (mainScript === undefined || !isAbsolute(mainScript)) return [];
  try {
    return [join(dirname(requireFrom(mainScript).resolve("holdfast/package.json")), "dist/cli/main.js")];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND") return [];
    throw error;
  }
}

/** Is it a part of our package? Beside a bundle there may be a program of somebody's with the same path. */
function isHoldfastProgram(program: string): boolean {
  for (let directory = dirname(program); directory !== dirname(directory); directory = dirname(directory)) {
    const manifest = join(directory, "package.json");
    if (existsSync(manifest))
      return (JSON.parse(readFileSync(manifest, "utf8")) as { name?: unknown }).name === "holdfast";
  }
  return false;
}
