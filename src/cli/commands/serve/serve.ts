/** `holdfast serve`: a lock server in this process, until a signal ends it or nobody needs it any more. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "../../../server/config/logger.ts";
import type { ConfigProblem, ServeOptions, Server } from "../../../server/server.ts";
import { acquireFileLock } from "../../../util/file-lock.ts";
import {
  prepareSocketPath,
  resolveUserDirectory,
  userSocketPath,
  validateUserDirectory,
} from "../../../util/user-directory.ts";
import { CommandError } from "../../errors.ts";
import { escapeControl, formatJsonLine, printLine } from "../../output.ts";
import { InterruptedError } from "../../signals.ts";
import { handleWarnings } from "../../warnings.ts";
import { parseDurationFlag } from "../run/options.ts";
import { createLogger } from "./log.ts";
import type { ServeSettings } from "./options.ts";
import { toServeSettings, toSettingErrors } from "./options.ts";
import type { FlagValues, ResolvedSettings, SettingError } from "./settings.ts";
import { resolveSettings } from "./settings.ts";
import { waitForShutdown } from "./shutdown.ts";

/** Saving the state and telling the clients may take so long. */
const DRAIN_TIMEOUT_MS = 10_000;

/**
 * Serves until SIGTERM or SIGINT, or idleness. Without --listen on this user's own socket.
 * @throws CommandError usage or config with all that is wrong; unreachable if an address or the state cannot be had
 */
export async function serveCommand(flags: FlagValues): Promise<number> {
  if (flags.onDemand === true) {
    const { serveOnDemand } = await import("./on-demand.ts");
    return serveOnDemand(typeof flags.idle === "string" ? parseDurationFlag(flags.idle, "--idle") : undefined);
  }
  const resolved = resolveSettings(flags, process.env);
  const settings = await toServeSettings(resolved.values, resolved.errors);
  const log = createLogger(settings.logFormat, settings.logLevel);
  handleWarnings((warning) => log(warning, undefined, { level: "warn" }));
  if (flags.check === true || resolved.errors.length > 0) {
    for (const warning of await preflight(settings, resolved)) log(warning, undefined, { level: "warn" });
    printLine("all is well");
    return 0;
  }
  const userSocket = settings.defaults.socket ? await claimUserSocket() : null;
  const server = await startServer(settings, userSocket, resolved, log);
  // before anybody is told where we are: who knows may send a signal
  const shutdown = waitForShutdown(server, { idleMs: settings.idleMs, onHangup: "reloads", log });
  printAddresses(server, flags.json === true);
  const { reason, isLost, isHangup } = await shutdown;
  log(`stopping: ${reason}`);
  // what was left unsaved then stands in the log
  if (isLost) {
    await Promise.allSettled([server.close()]);
    throw new CommandError("unreachable", reason);
  }
  await closeServer(server);
  if (isHangup) throw new InterruptedError("SIGHUP");
  return 0;
}

/** Settles when the server has stopped. @throws CommandError if its state was not saved, or may not be */
async function closeServer(server: Server): Promise<void> {
  const timeout = delay(DRAIN_TIMEOUT_MS, "late", { ref: false });
  const stopped = server.close().catch((error: Error) => {
    throw new CommandError("output", error.message, { cause: error });
  });
  if ((await Promise.race([stopped, timeout])) !== "late") return;
  throw new CommandError(
    "internal",
    `stopping took more than ${DRAIN_TIMEOUT_MS / 1_000} s: the state may not be saved`,
  );
}

/** Everything that could be wrong. @throws CommandError with all of it */
async function preflight(settings: ServeSettings, { values, errors }: ResolvedSettings): Promise<readonly string[]> {
  const { checkOptions } = await import("../../../server/server.ts");
  const { problems, warnings } = await checkOptions({
    ...settings.serve,
    ...userSocketPaths(settings),
  } as ServeOptions);
  // the folder of our own socket is made if need be
  const isUserSocket = ({ option, isEnvironmental }: ConfigProblem): boolean =>
    settings.defaults.socket && option === "listen" && isEnvironmental;
  throwErrors([
    ...errors,
    ...toSettingErrors(
      values,
      problems.filter((problem) => !isUserSocket(problem)),
    ),
  ]);
  return warnings;
}

/** Wrong words on the command line are wrong usage, all else is a wrong configuration. */
function throwErrors(errors: readonly SettingError[]): void {
  if (errors.length === 0) return;
  const lines = errors.map(({ origin, message }) => `${origin}: ${message}`);
  const details = { errors: errors.map(({ origin: where, message }) => ({ where, message })) };
  const kind = errors.every(({ isUsage }) => isUsage) ? "usage" : "config";
  throw new CommandError(kind, lines.map(escapeControl).join("\n"), { details });
}

/** Where a server of this user's own would be; makes nothing. */
function userSocketPaths({ defaults, serve }: ServeSettings): Pick<ServeOptions, "listen" | "state"> {
  const directory = resolveUserDirectory();
  return {
    listen: defaults.socket ? `unix:${userSocketPath(directory)}` : serve.listen,
    ...(defaults.state && { state: stateDirectory(directory, defaults.socket) }),
  };
}

function stateDirectory(directory: string, isUserSocket: boolean): string {
  return join(directory, isUserSocket ? "state" : "serve");
}

async function startServer(
  { serve: options, defaults }: ServeSettings,
  userSocket: { readonly socket: string; readonly directory: string } | null,
  { values }: ResolvedSettings,
  log: Logger,
): Promise<Server> {
  const listen = userSocket === null ? options.listen : `unix:${userSocket.socket}`;
  const state = defaults.state
    ? { state: userSocket === null ? prepareDefaultState() : stateDirectory(userSocket.directory, true) }
    : {};
  const serveOptions = { ...options, ...state, listen, log };
  const { serve } = await import("../../../server/server.ts");
  try {
    return await serve(serveOptions);
  } catch (error) {
    const { problems } = error as { readonly problems?: readonly ConfigProblem[] };
    if (problems !== undefined) throwErrors(toSettingErrors(values, problems));
    throw new CommandError("unreachable", `the server could not be started: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** The user's own socket and directory, if no server has them: then they are ours as long as this process lives. */
async function claimUserSocket(): Promise<{ readonly socket: string; readonly directory: string }> {
  const directory = resolveUserDirectory();
  const socket = prepareSocketPath(directory);
  // never closed: the lock ends with the process
  if ((await acquireFileLock(join(directory, "election"))) === null) {
    throw new CommandError(
      "unreachable",
      `your lock server is running already (in ${directory}): add --listen tcp://127.0.0.1:7420, or another address, to run one of its own beside it; clients then name it, as by --url holdfast://127.0.0.1:7420`,
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
    return printLine(formatJsonLine({ listening: addresses, ...http, start: runId, reclaimMs: recoveryRemainingMs }));
  }
  const lines = addresses.map((address) => `listening on ${address}`);
  // at once: who waits for the first line knows everything
  printLine([...lines, ...(httpAddress === null ? [] : [`HTTP on ${httpAddress}`])].join("\n"));
}
