/**
 * The user's own server: started when no process listens on its socket, and started again after it died. If several
 * processes start one at once, the kernel decides which server wins (os/file-lock.ts); the other servers exit, and
 * their starters wait for the winner.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, existsSync, fstatSync, ftruncateSync, openSync, readFileSync } from "node:fs";
// as a whole: the banner of many bundles declares "createRequire", and a bundler may give an import its own name back
import nodeModule from "node:module";
import { connect } from "node:net";
import { dirname, isAbsolute, join } from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createConnectError } from "../../net/transport.ts";
import { prepareSocketPath, resolveUserDirectory } from "../../os/user-directory.ts";
import type { Driver } from "../../spi/driver.ts";
import { systemErrorCode } from "../../util/system-error.ts";
import { lockServer } from "./driver.ts";

/** A start empties the log of the server's output if it is longer than this. */
const MAX_LOG_BYTES = 262_144;
/** The file descriptor on which a starting server reports the outcome. */
const READY_FD = 3;
const POLL_INTERVAL_MS = 10;
/**
 * If another process's server was about to listen, or one was about to exit, another start is tried after this time.
 */
const RESTART_INTERVAL_MS = 250;

/** Options of the on-demand server's driver. */
export interface AutostartOptions {
  /** How long the first connection may take, the server's start included, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** See ServerOptions. A server that has died while it was being reached is started again anyway. */
  readonly opensOnce: boolean;
  /** The label of claims that have none. */
  readonly label: string;
}

/**
 * A driver for this user's own lock server. It starts the server before it connects if no process listens.
 * @throws StoreRefusedError if the user's directory is refused; TypeError if its path is too long
 */
export function createAutostartDriver({ connectTimeoutMs, opensOnce, label }: AutostartOptions): Driver {
  const path = prepareSocketPath(resolveUserDirectory());
  const beforeConnect = (): Promise<void> => ensureServerRunning(connectTimeoutMs);
  return lockServer({ path, connectTimeout: connectTimeoutMs, opensOnce, label, beforeConnect });
}

/** Settles when a server listens; starts one if necessary. */
async function ensureServerRunning(timeoutMs: number): Promise<void> {
  // checked on each attempt: the directory may have been replaced
  const directory = resolveUserDirectory();
  const path = prepareSocketPath(directory);
  const deadline = performance.now() + timeoutMs;
  let nextStartAt = performance.now();
  for (;;) {
    const socketState = await probeSocket(path);
    if (socketState === "listening") return;
    const now = performance.now();
    if (now >= deadline) {
      const what = socketState === "busy" ? `${path} accepted no connection` : `no lock server started in ${directory}`;
      throw createConnectError("ETIMEDOUT", `${what} within ${timeoutMs} ms; see ${getLogPath(directory)}`);
    }
    if (socketState === "absent" && now >= nextStartAt) {
      await startOnce(directory, deadline - now);
      nextStartAt = performance.now() + RESTART_INTERVAL_MS;
    } else {
      await delay(POLL_INTERVAL_MS);
    }
  }
}

/** Only a refusal and a missing file mean that no server listens; a full backlog (EAGAIN) means that one does. */
function probeSocket(path: string): Promise<"listening" | "absent" | "busy"> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve("listening");
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNREFUSED" || error.code === "ENOENT") resolve("absent");
      else if (error.code === "EAGAIN") resolve("busy");
      else reject(error);
    });
  });
}

let startInProgress: Promise<void> | null = null;

/** One start at a time in this process. Settles when a server is ready, or when another server was faster. */
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
    // spawned through a short-lived shell, so that the server is re-parented and survives a kill of this process tree;
    // Deno finds itself in the shell's words and adds `run -A`
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
  // "": it was killed before it could report; the caller probes again, until its deadline
  if (message === "ready" || message === "taken" || message === "") return;
  throw new Error(`the lock server could not be started: ${message}; see ${getLogPath(directory)}`);
}

/**
 * The line that the server wrote to its ready descriptor once it was ready or had failed; "" if it ended before. A
 * server on Deno cannot close an inherited descriptor, so the end of the line counts.
 */
function readReadyMessage(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    let message = "";
    // unset if it could not be spawned
    const stream = (child.stdio as ChildProcess["stdio"] | undefined)?.[READY_FD] as Readable | null | undefined;
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      message += chunk;
      if (message.endsWith("\n")) stream.destroy();
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

/** Its path from this module: as built (one directory below dist), as compiled for the tests, as source. */
const SERVER_PROGRAM_PATHS: readonly string[] = ["../cli/main.js", "../../cli/main.js", "../../../dist/cli/main.js"];

/**
 * The program that contains the server. A user's bundle has none beside it, but its project may have installed the
 * package.
 */
function findServerProgram(): string {
  const program = [...listSiblingPrograms(), ...listProjectPrograms()].find(
    (path) => existsSync(path) && isHoldfastProgram(path),
  );
  if (program === undefined) {
    throw new Error(
      "no lock server is running, and the program to start one was not found: run `holdfast serve`, pass a url, or install the package where your bundle can find it",
    );
  }
  return program;
}

function listSiblingPrograms(): string[] {
  // undefined in a CommonJS bundle
  const moduleUrl = import.meta.url as string | undefined;
  return moduleUrl === undefined ? [] : SERVER_PROGRAM_PATHS.map((path) => fileURLToPath(new URL(path, moduleUrl)));
}

/**
 * The package that the main program would import. Never resolved from the working directory, which another user may
 * control.
 */
function listProjectPrograms(): string[] {
  const mainScript = process.argv[1];
  if (mainScript === undefined || !isAbsolute(mainScript)) return [];
  try {
    return [join(dirname(nodeModule.createRequire(mainScript).resolve("holdfast/package.json")), "dist/cli/main.js")];
  } catch (error) {
    if (systemErrorCode(error) === "MODULE_NOT_FOUND") return [];
    throw error;
  }
}

/** Is it part of this package? An unrelated program may have the same path beside a bundle. */
function isHoldfastProgram(program: string): boolean {
  for (let directory = dirname(program); directory !== dirname(directory); directory = dirname(directory)) {
    const manifest = join(directory, "package.json");
    if (!existsSync(manifest)) continue;
    const { name } = JSON.parse(readFileSync(manifest, "utf8")) as { readonly name?: unknown };
    // without a name it says only what kind of modules the folder has
    if (name !== undefined) return name === "holdfast";
  }
  return false;
}
