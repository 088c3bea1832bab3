/** The lock server, embedded in a program or run by `holdfast serve`. */

import { acquireFileLock } from "../os/file-lock.ts";
import { probeProcess } from "../os/process-info.ts";
import { PACKAGE_VERSION } from "../protocol/handshake.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import { randomId } from "../util/ids.ts";
import type { ServerParts } from "./compose.ts";
import { composeServer } from "./compose.ts";
import type { ServerConfig } from "./config/config.ts";
import { resolveConfig } from "./config/config.ts";
import type { ServeOptions, Server } from "./config/options.ts";
import type { ConfigProblem } from "./config/port-config.ts";
import { reloadFiles } from "./config/reload.ts";
import { createInProcessConnector } from "./in-process.ts";
import type { Logger } from "./logger.ts";
import type { OpenHttp } from "./net/listeners.ts";
import { Listeners } from "./net/listeners.ts";
import { monitorOwnership } from "./ownership-monitor.ts";
import { NO_COMMAND_RUNS } from "./runs/command-run.ts";
import { openCommandRuns, resolveRunDirectory } from "./runs/run-file-reader.ts";
import type { Readiness } from "./status.ts";
import type { DirectoryStorage } from "./storage/state-directory.ts";
import { openStateDirectory } from "./storage/state-directory.ts";

export type { ServeOptions, Server } from "./config/options.ts";
export type { ConfigProblem } from "./config/port-config.ts";
export type { PreflightResult } from "./config/preflight.ts";
export { checkOptions } from "./config/preflight.ts";
export type { LogFields, Logger, LogLevel } from "./logger.ts";
export type { TlsFiles } from "./net/tls-config.ts";
export type { Readiness } from "./status.ts";
export { StateError } from "./storage/private-files.ts";

/** How long a session survives without contact. */
const SESSION_MS = 30_000;

/**
 * Runs a lock server in this process.
 * @throws TypeError for invalid options; Error naming a file that cannot be used; StateError if the state cannot be
 * used; a system error, naming the address, if listening fails
 */
export async function serve(options: ServeOptions): Promise<Server> {
  const { config, problems } = resolveConfig(options);
  if (problems.length > 0) throw toConfigError(problems);
  const { clock = systemClock, log = logToConsole } = options;
  if (config.tls !== null) log(config.tls.summary);
  for (const warning of config.warnings) log(warning, undefined, { level: "warn" });
  const { parts, storage } = await openParts(options, config, clock, log);
  const { service, backend, sessions, status } = parts;
  const listeners = new Listeners(config.addresses, config.tls, service, createHttpOpener(options, config, parts));
  const monitor = monitorOwnership(clock, () => storage?.lostReason() ?? listeners.lostReason());
  let closing: Promise<void> | null = null;
  const close = (): Promise<void> => {
    monitor.close();
    closing ??= shutDown(parts, listeners);
    return closing;
  };
  const ownershipLost = monitor.lost.then((reason) => {
    log(`the server is ending: ${reason}`, undefined, { level: "error" });
    close().catch((error: unknown) => log("the state could not be saved at the end", error));
    return reason;
  });
  try {
    await listeners.open();
  } catch (error) {
    await close();
    throw error;
  }
  return {
    addresses: listeners.addresses,
    httpAddress: listeners.httpAddress,
    runId: service.runId,
    get recoveryRemainingMs() {
      return backend.recoveryRemainingMs();
    },
    ready: () => status.readiness(),
    stats: () => ({ sessions: sessions.clients().length, claims: backend.claimCount }),
    reload: async () => reloadFiles(options, { access: config.access, listener: listeners, log }),
    ownershipLost,
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Opens what the server keeps on disk, and composes the server with it. */
async function openParts(
  { state, firstStart = false }: ServeOptions,
  { access, limits, http, addresses }: ServerConfig,
  clock: Clock,
  log: Logger,
): Promise<{ readonly parts: ServerParts; readonly storage: DirectoryStorage | null }> {
  const socketPath = addresses.find((address) => "path" in address)?.path ?? null;
  const runDirectory = resolveRunDirectory(state, socketPath);
  const remote = http !== null || addresses.some((address) => !("path" in address));
  const runId = randomId().slice(0, 8);
  const common = {
    clock,
    log,
    runId,
    access,
    limits,
    remote,
    sessionMs: SESSION_MS,
    probe: probeProcess,
    runDirectory,
  };
  const storage = state === "none" ? null : await openState(state, firstStart, log);
  try {
    const commandRuns = runDirectory === null ? NO_COMMAND_RUNS : await openCommandRuns(runDirectory, log);
    return { parts: await composeServer({ ...common, storage, firstStart, commandRuns }), storage };
  } catch (error) {
    await storage?.close();
    throw error;
  }
}

function openState(path: string, firstStart: boolean, log: Logger): Promise<DirectoryStorage> {
  const warn = (message: string): void => log(message, undefined, { level: "warn" });
  return openStateDirectory(path, { acquireLock: acquireFileLock, log: warn, firstStart });
}

/** Opens the HTTP port, whose code is loaded only with `http`; null: HTTP is not served. */
function createHttpOpener(
  { httpNames = [] }: ServeOptions,
  { access, http: address, tls }: ServerConfig,
  { service, eventLog, metrics, status }: ServerParts,
): OpenHttp | null {
  if (address === null) return null;
  return async () => {
    const { openHttpServer } = await import("../gateway/http/http-server.ts");
    const { createServerDashboard, createServerGateway } = await import("../gateway/server-gateway.ts");
    const checkReadiness = (): Readiness => status.readiness();
    const gateway = createServerGateway(service, access, (principal) => createInProcessConnector(service, principal));
    const dashboard = createServerDashboard(gateway, eventLog);
    const parts = { service: gateway, access, eventLog, metrics, checkReadiness, dashboard };
    return openHttpServer(address, { ...parts, version: PACKAGE_VERSION, names: httpNames }, tls);
  };
}

async function shutDown({ service, status, eventLog, closeBackend }: ServerParts, listeners: Listeners): Promise<void> {
  status.markStopping();
  listeners.stopAccepting();
  service.drain();
  try {
    await closeBackend();
  } finally {
    await listeners.close();
    eventLog.close();
  }
}

/**
 * An invalid value is a TypeError, as everywhere. `problems` carries each one, for callers that know where it was set.
 */
function toConfigError(problems: readonly ConfigProblem[]): Error {
  const text = problems.map(({ option, message }) => `${option}: ${message}`).join("\n");
  return Object.assign(
    problems.every(({ isEnvironmental }) => isEnvironmental) ? new Error(text) : new TypeError(text),
    { problems },
  );
}

function logToConsole(message: string, error?: unknown): void {
  console.error(`holdfast: ${message}`, ...(error === undefined ? [] : [error]));
}
