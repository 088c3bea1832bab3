/** `holdfast serve`: runs a lock server in this process until a signal stops it or it is idle. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import { acquireFileLock } from "../../../os/file-lock.ts";
import {
  prepareSocketPath,
  resolveUserDirectory,
  userSocketPath,
  validateUserDirectory,
} from "../../../os/user-directory.ts";
import type { Logger } from "../../../server/logger.ts";
import type { ConfigProblem, ServeOptions, Server } from "../../../server/server.ts";
import { formatServerUrl } from "../../../util/server-url.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import { CommandError } from "../../errors.ts";
import { escapeControl, formatJsonLine, handleWarnings, printLine } from "../../output.ts";
import { InterruptedError } from "../../signals.ts";
import { createLogger } from "./log.ts";
import type { ServeSettings, SettingError } from "./settings.ts";
import { Settings, toServeSettings, toSettingErrors } from "./settings.ts";
import { waitForShutdown } from "./shutdown.ts";

/** The time to notify the clients and save the state. */
const DRAIN_TIMEOUT_MS = 10_000;

/**
 * Serves until SIGTERM, SIGINT or the idle timeout; without --listen, on the user's own socket.
 * @throws CommandError usage or config with all errors; unreachable if an address or the state is not available
 */
export async function serveCommand(command: Command): Promise<number> {
  const { onDemand, idle } = command.opts<{ readonly onDemand?: true; readonly idle?: string }>();
  if (onDemand === true) {
    const { serveOnDemand } = await import("./on-demand.ts");
    // the environment is that of the program which starts this server, and its HOLDFAST_IDLE is for another one
    const isFlag = command.getOptionValueSource("idle") === "cli";
    return serveOnDemand(idle !== undefined && isFlag ? parseDurationFlag(idle, "--idle") : undefined);
  }
  const settings = new Settings(command);
  const options = toServeSettings(settings);
  const log = createLogger(options.logFormat, options.logLevel);
  handleWarnings((warning) => log(warning, undefined, { level: "warn" }));
  if (settings.has("check") || settings.errors.length > 0) {
    for (const warning of await preflight(options, settings)) log(warning, undefined, { level: "warn" });
    printLine("configuration is valid");
    return 0;
  }
  const userSocket = options.defaults.socket ? await claimUserSocket() : null;
  const server = await startServer(options, userSocket, settings, log);
  // before printing the addresses: a reader of those lines may send a signal at once
  const shutdown = waitForShutdown(server, { idleMs: options.idleMs, onHangup: "reload", log });
  printAddresses(server, settings.has("json"));
  const { reason, isLost, isHangup } = await shutdown;
  log(`stopping: ${reason}`);
  // close() fails if the state could not be saved; the server logs that
  if (isLost) {
    await Promise.allSettled([server.close()]);
    throw new CommandError("unreachable", reason);
  }
  await closeServer(server);
  if (isHangup) throw new InterruptedError("SIGHUP");
  return 0;
}

/** Settles when the server has stopped. @throws CommandError if the state was not saved, or may not have been */
async function closeServer(server: Server): Promise<void> {
  const timeout = delay(DRAIN_TIMEOUT_MS, "late", { ref: false });
  const stopped = server.close().catch((error: Error) => {
    throw new CommandError("output", error.message, { cause: error });
  });
  if ((await Promise.race([stopped, timeout])) !== "late") return;
  throw new CommandError(
    "internal",
    `stopping took more than ${DRAIN_TIMEOUT_MS / 1_000} s: the state may not have been saved`,
  );
}

/** Checks the configuration and returns its warnings. @throws CommandError with all errors */
async function preflight(options: ServeSettings, settings: Settings): Promise<readonly string[]> {
  const { checkOptions } = await import("../../../server/server.ts");
  const { problems, warnings } = await checkOptions({
    ...options.serve,
    ...userSocketPaths(options),
  } as ServeOptions);
  // claimUserSocket() creates the directory of the user's own socket if it is missing
  const isUserSocket = ({ option, isEnvironmental }: ConfigProblem): boolean =>
    options.defaults.socket && option === "listen" && isEnvironmental;
  throwErrors([
    ...settings.errors,
    ...toSettingErrors(
      settings,
      problems.filter((problem) => !isUserSocket(problem)),
    ),
  ]);
  return warnings;
}

/** Errors of flags alone are wrong usage; with any other error the configuration is wrong. */
export function throwErrors(errors: readonly SettingError[]): void {
  if (errors.length === 0) return;
  const lines = errors.map(({ origin, message }) => `${origin}: ${message}`);
  const details = { errors: errors.map(({ origin: where, message }) => ({ where, message })) };
  const kind = errors.every(({ isUsage }) => isUsage) ? "usage" : "config";
  throw new CommandError(kind, lines.map(escapeControl).join("\n"), { details });
}

/** The default socket and state directory of the user; creates nothing. */
function userSocketPaths({ defaults, serve }: ServeSettings): Pick<ServeOptions, "listen" | "state"> {
  const directory = resolveUserDirectory();
  return {
    listen: defaults.socket ? formatServerUrl({ path: userSocketPath(directory) }) : serve.listen,
    state: defaults.state ? stateDirectory(directory, defaults.socket) : (serve.state ?? ""),
  };
}

function stateDirectory(directory: string, isUserSocket: boolean): string {
  return join(directory, isUserSocket ? "state" : "serve");
}

async function startServer(
  { serve: options, defaults }: ServeSettings,
  userSocket: { readonly socket: string; readonly directory: string } | null,
  settings: Settings,
  log: Logger,
): Promise<Server> {
  const listen = userSocket === null ? options.listen : formatServerUrl({ path: userSocket.socket });
  const defaultState = (): string =>
    userSocket === null ? prepareDefaultState() : stateDirectory(userSocket.directory, true);
  const serveOptions = { ...options, state: defaults.state ? defaultState() : (options.state ?? ""), listen, log };
  const { serve } = await import("../../../server/server.ts");
  try {
    return await serve(serveOptions);
  } catch (error) {
    const { problems } = error as { readonly problems?: readonly ConfigProblem[] };
    if (problems !== undefined) throwErrors(toSettingErrors(settings, problems));
    throw new CommandError("unreachable", `the server could not be started: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/**
 * Claims the user's own socket and directory for the lifetime of this process. @throws CommandError if a server uses
 * them
 */
async function claimUserSocket(): Promise<{ readonly socket: string; readonly directory: string }> {
  const directory = resolveUserDirectory();
  const socket = prepareSocketPath(directory);
  // never closed: the lock ends with the process
  if ((await acquireFileLock(join(directory, "election"))) === null) {
    throw new CommandError(
      "unreachable",
      `your lock server is already running (in ${directory}): to run another one, add --listen holdfast://127.0.0.1:7420, and --url with the same address for its clients`,
    );
  }
  return { socket, directory };
}

function prepareDefaultState(): string {
  const directory = resolveUserDirectory();
  prepareSocketPath(directory);
  validateUserDirectory(directory);
  return stateDirectory(directory, false);
}

function printAddresses({ addresses, httpAddress, runId, recoveryRemainingMs }: Server, isJson: boolean): void {
  if (isJson) {
    const http = httpAddress === null ? {} : { http: httpAddress };
    return printLine(formatJsonLine({ listening: addresses, ...http, runId, recoveryRemainingMs }));
  }
  const lines = addresses.map((address) => `listening on ${address}`);
  // one write, so that a program that waits for the first line has read all of them
  printLine([...lines, ...(httpAddress === null ? [] : [`HTTP on ${httpAddress}`])].join("\n"));
}
