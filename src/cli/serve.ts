/** `holdfast serve`: a lock server in this process, until a signal ends it or nobody needs it any more. */

import { closeSync, fstatSync, ftruncateSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { elect } from "../server/election.ts";
import { watchOwnPath } from "../server/own-path.ts";
import type { ServeOptions, Server } from "../server/serve.ts";
import { checkDirectory, preparedSocketPath, userDirectory } from "../user-directory.ts";
import { CommandError } from "./failure.ts";
import { jsonLine, print, say } from "./output.ts";
import { durationOf } from "./run-options.ts";

/** Flags of `serve`. */
export interface ServeFlags {
  readonly listen: readonly string[];
  readonly state?: string;
  readonly idle?: string;
  readonly quiet?: boolean;
  readonly json?: boolean;
  /** Hidden: started by a client for its user. */
  readonly onDemand?: boolean;
}

/** The server itself is loaded only here: the build leaves it out of the command line's one file. */
async function serve(options: ServeOptions): Promise<Server> {
  return (await import("../server/serve.ts")).serve(options);
}

/** How long a server that was started on demand stays when nobody needs it. */
const ON_DEMAND_IDLE_MS = 600_000;
const IDLE_LOOKS = 10;
const LONGEST_LOOK_MS = 30_000;
/** The log of a server on demand is cut when it grows beyond this. */
const MOST_LOG_BYTES = 262_144;
/** Where a server on demand says how its start went; see drivers/server/on-demand.ts. */
const READY_DESCRIPTOR = 3;

/**
 * Serves until SIGTERM, SIGINT or SIGHUP, or idleness. Without --listen on this user's own socket.
 * @throws CommandError if an address or the state cannot be had
 */
export async function serveCommand(flags: ServeFlags): Promise<number> {
  const idleMs = flags.idle === undefined ? undefined : durationOf(flags.idle, "--idle");
  if (flags.onDemand === true) return serveOnDemand(idleMs ?? ON_DEMAND_IDLE_MS);
  const log = flags.quiet === true ? (): void => undefined : logTo(say);
  const own = flags.listen.length === 0 ? await ownPlace() : null;
  const listen = own === null ? flags.listen : [`unix:${own.socket}`];
  const state = flags.state ?? own?.state ?? defaultState();
  const server = await opened(listen, state, log);
  // before anybody is told where we are: who knows may send a signal
  const over = untilOver(server, own?.socket ?? null, idleMs);
  if (flags.json === true)
    print(jsonLine({ listening: server.addresses, start: server.start, reclaimMs: server.reclaimMs }));
  else for (const address of server.addresses) print(`listening on ${address}`);
  if (server.reclaimMs > 0)
    log(
      `the last server did not stop cleanly: granting nothing new for up to ${Math.ceil(server.reclaimMs / 1_000)} s`,
    );
  log(`stopping: ${await over}`);
  await server.close();
  return 0;
}

async function opened(listen: readonly string[], state: string, log: Log): Promise<Server> {
  try {
    return await serve({ listen, state, log });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (error instanceof TypeError) throw error;
    const said = code === "EADDRINUSE" ? `another server listens on ${listen.join(" or ")}` : message;
    throw new CommandError("unreachable", `the server could not be started: ${said}`, { cause: error });
  }
}

/** The user's own socket and state, if no server has them: then they are ours as long as this process lives. */
async function ownPlace(): Promise<{ readonly socket: string; readonly state: string }> {
  const directory = userDirectory();
  const socket = preparedSocketPath(directory);
  // never closed: the lock ends with the process
  if ((await elect(join(directory, "election"))) === null) {
    throw new CommandError(
      "unreachable",
      `your lock server is running already (in ${directory}); --listen gives another address`,
    );
  }
  return { socket, state: join(directory, "state") };
}

function defaultState(): string {
  const directory = userDirectory();
  preparedSocketPath(directory);
  checkDirectory(directory);
  return join(directory, "serve");
}

/** Settles with the reason why the server is to stop. */
function untilOver(server: Server, path: string | null, idleMs: number | undefined): Promise<string> {
  return new Promise((resolve) => {
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, () => resolve(`received ${name}`));
    if (path !== null) watchOwnPath(path, server.start, resolve);
    if (idleMs === undefined) return;
    let busyAt = performance.now();
    setInterval(
      () => {
        const { sessions, claims } = server.stats();
        if (sessions > 0 || claims > 0) busyAt = performance.now();
        else if (performance.now() - busyAt >= idleMs) resolve("nobody has needed it for a while");
      },
      Math.min(Math.max(idleMs / IDLE_LOOKS, 10), LONGEST_LOOK_MS),
    );
  });
}

/**
 * The server that a client of this user starts when nobody listens: of several only the one that the kernel elects stays.
 * It keeps nothing of its starter, which waits for one word on a descriptor of its own.
 */
async function serveOnDemand(idleMs: number): Promise<number> {
  process.umask(0o077);
  closeInherited();
  const log = logTo(logLine);
  try {
    const directory = userDirectory();
    const socket = preparedSocketPath(directory);
    if ((await elect(join(directory, "election"))) === null) {
      answerStarter("taken");
      return 0;
    }
    const server = await serve({ listen: `unix:${socket}`, state: join(directory, "state"), log });
    const over = untilOver(server, socket, idleMs);
    log(`listening on ${socket}`);
    answerStarter("ready");
    log(`stopping: ${await over}`);
    await server.close();
    return 0;
  } catch (error) {
    log("could not start", error);
    answerStarter((error as Error).message);
    return 1;
  }
}

type Log = (message: string, error?: unknown) => void;

function logTo(line: (text: string) => void): Log {
  return (message, error) =>
    line(error === undefined ? message : `${message}: ${error instanceof Error ? error.message : String(error)}`);
}

/** Standard error is the log file, which must not grow for ever. */
function logLine(text: string): void {
  const { size } = fstatSync(2);
  if (size > MOST_LOG_BYTES) ftruncateSync(2);
  writeSync(2, `${new Date().toISOString()} ${process.pid} ${text}\n`);
}

/** Says how the start went and lets go of the descriptor. Nobody may be listening any more. */
function answerStarter(word: string): void {
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

/** Descriptors of the starter's that no program marked as its own (close-on-exec) came through to us; Linux shows them. */
function closeInherited(): void {
  let names: string[];
  try {
    names = readdirSync("/proc/self/fdinfo");
  } catch {
    // no such file system: what Node closes by itself must do
    return;
  }
  for (const name of names) {
    const descriptor = Number(name);
    if (descriptor <= READY_DESCRIPTOR) continue;
    const flags = flagsOf(descriptor);
    if (flags !== null && (flags & 0o2000000) === 0) closeSync(descriptor);
  }
}

function flagsOf(descriptor: number): number | null {
  try {
    const found = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, "latin1"));
    return found === null ? null : Number.parseInt(found[1] as string, 8);
  } catch {
    // the listing's own descriptor, closed by now
    return null;
  }
}
