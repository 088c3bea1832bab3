/**
 * The user's own server, started when nobody listens on its socket and started again when it died. Who of several
 * starters wins is the kernel's decision (server/election.ts); everybody else's server leaves at once and waits for it.
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
import { preparedSocketPath, userDirectory } from "../../user-directory.ts";
import { server } from "./driver.ts";

/** What the server's output is cut to when it is started. */
const MOST_LOG_BYTES = 262_144;
/** The descriptor on which a server that is being started says how that went. */
const READY_DESCRIPTOR = 3;
const POLL_MS = 10;
/** Somebody else's server was about to listen, or one to leave: after so long another start is tried. */
const TRY_AGAIN_MS = 250;

/** How to reach the server on demand. */
export interface OnDemandOptions {
  /** How long it may take to be reached for the first time, its start included, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** For claims that bring no label of their own. */
  readonly label: string;
}

/**
 * This user's own lock server as a store. Whenever it must be reached and nobody listens, it is started.
 * @throws FatalDriverError if the user's directory is refused; TypeError if its path is too long
 */
export function onDemand({ connectTimeoutMs, label }: OnDemandOptions): Driver {
  const path = preparedSocketPath(userDirectory());
  return server({ path, connectTimeoutMs, label, prepare: () => somebodyListens(connectTimeoutMs) });
}

/** Settles when a server listens, started by us if need be. */
async function somebodyListens(timeoutMs: number): Promise<void> {
  // looked at anew each time: what was ours may have been replaced
  const directory = userDirectory();
  const path = preparedSocketPath(directory);
  const end = performance.now() + timeoutMs;
  let startAt = performance.now();
  for (;;) {
    const found = await probe(path);
    if (found === "somebody") return;
    const now = performance.now();
    if (now >= end)
      throw new Error(`no lock server came up in ${directory} within ${timeoutMs} ms; see ${logPath(directory)}`);
    if (found === "nobody" && now >= startAt) {
      await start(directory, end - now);
      startAt = performance.now() + TRY_AGAIN_MS;
    } else {
      await delay(POLL_MS);
    }
  }
}

/** Only a refusal and a missing file mean that nobody listens: a full backlog (EAGAIN) is a living server. */
function probe(path: string): Promise<"somebody" | "nobody" | "busy"> {
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

let starting: Promise<void> | null = null;

/** One start at a time in this process. Settles when a server is ready, or another one was faster. */
function start(directory: string, timeoutMs: number): Promise<void> {
  starting ??= startServer(directory, timeoutMs).finally(() => {
    starting = null;
  });
  return starting;
}

async function startServer(directory: string, timeoutMs: number): Promise<void> {
  const log = openLog(directory);
  let child: ChildProcess;
  try {
    // by way of a shell that ends at once, so that it is nobody's child: not ours, nor of who kills all below us
    child = spawn("sh", ["-c", '"$@" &', "sh", process.execPath, serverProgram(), "serve", "--on-demand"], {
      cwd: "/",
      detached: true,
      stdio: ["ignore", log, log, "pipe"],
      env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", HOLDFAST_DIR: directory },
    });
  } finally {
    closeSync(log);
  }
  const said = await Promise.race([saidBy(child), delay(timeoutMs, "nothing", { ref: false })]);
  // it was killed before it could say anything: our caller looks again, and has a bound
  if (said === "ready" || said === "taken" || said === "") return;
  throw new Error(`the lock server could not be started: it said ${said}; see ${logPath(directory)}`);
}

/** All that the server wrote on its ready descriptor, which it closes as soon as that is decided. */
function saidBy(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    let said = "";
    const stream = child.stdio[READY_DESCRIPTOR] as Readable | null | undefined;
    stream?.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    stream?.once("error", reject);
    stream?.once("close", () => resolve(said.trim()));
  });
}

function logPath(directory: string): string {
  return join(directory, "server.log");
}

function openLog(directory: string): number {
  const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW } = constants;
  const log = openSync(logPath(directory), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o600);
  if (fstatSync(log).size > MOST_LOG_BYTES) ftruncateSync(log);
  return log;
}

/** Where it may be from here: as built (one folder below dist), as compiled for the tests, as source. */
const PROGRAMS: readonly string[] = ["../cli/main.js", "../../cli/main.js", "../../../dist/cli/main.js"];

/** The program that holds the server. A bundle by others has none; it may stand in a project that has the package. */
function serverProgram(): string {
  const program = [...besideUs(), ...inProject()].find((path) => existsSync(path) && isOurs(path));
  if (program === undefined) {
    throw new Error(
      "no lock server is running, and the program to start one is not here: run `holdfast serve`, give a url, or install the package where your bundle can find it",
    );
  }
  return program;
}

function besideUs(): string[] {
  // a bundle in the form of CommonJS has none
  const here = import.meta.url as string | undefined;
  return here === undefined ? [] : PROGRAMS.map((path) => fileURLToPath(new URL(path, here)));
}

/** What the main program would import by our name. Never by way of the working directory, which may be anybody's. */
function inProject(): string[] {
  const main = process.argv[1];
  if (main === undefined || !isAbsolute(main)) return [];
  try {
    return [join(dirname(requireFrom(main).resolve("holdfast/package.json")), "dist/cli/main.js")];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND") return [];
    throw error;
  }
}

/** Is it a part of our package? Beside a bundle there may be a program of somebody's with the same path. */
function isOurs(program: string): boolean {
  for (let folder = dirname(program); folder !== dirname(folder); folder = dirname(folder)) {
    const manifest = join(folder, "package.json");
    if (existsSync(manifest))
      return (JSON.parse(readFileSync(manifest, "utf8")) as { name?: unknown }).name === "holdfast";
  }
  return false;
}
