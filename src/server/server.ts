/** The lock server, embedded in a program or run by `holdfast serve`. */

import { systemClock } from "../util/clock.ts";
import { loadAccounts } from "./auth/accounts-file.ts";
import type { ServerParts } from "./compose.ts";
import { composeServer } from "./compose.ts";
import type { ConfigProblem, ServerConfig } from "./config/config.ts";
import { resolveConfig } from "./config/config.ts";
import type { Logger } from "./config/logger.ts";
import type { ServeOptions, Server } from "./config/options.ts";
import type { Listeners } from "./net/listeners.ts";
import { loadTlsConfig } from "./net/tls-config.ts";
import { monitorOwnership } from "./ownership-monitor.ts";

export type { ConfigProblem } from "./config/config.ts";
export type { LogFields, Logger, LogLevel } from "./config/logger.ts";
export type { Readiness, ServeOptions, Server, TlsFiles } from "./config/options.ts";
export type { PreflightResult } from "./config/preflight.ts";
export { checkOptions } from "./config/preflight.ts";
export { StateError } from "./storage/private-files.ts";

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
  const parts = await composeServer(options, config, clock, log);
  const { service, backendHandle, listeners } = parts;
  let closing: Promise<void> | null = null;
  let monitor: { close(): void } | null = null;
  const close = (): Promise<void> => {
    monitor?.close();
    closing ??= shutDown(parts);
    return closing;
  };
  try {
    await listeners.open();
  } catch (error) {
    await close();
    throw error;
  }
  const ownershipLost = new Promise<string>((resolve) => {
    monitor = monitorOwnership(
      clock,
      () => backendHandle.lostReason() ?? listeners.lostReason(),
      (reason) => {
        log(`the server is ending: ${reason}`, undefined, { level: "error" });
        close().catch((error: unknown) => log("the state could not be saved at the end", error));
        resolve(reason);
      },
    );
  });
  return {
    addresses: listeners.addresses,
    httpAddress: listeners.httpAddress,
    runId: service.runId,
    get recoveryRemainingMs() {
      return backendHandle.backend.recoveryRemainingMs();
    },
    ready: () => parts.checkReadiness(),
    stats: () => ({ sessions: backendHandle.sessions.byId.size, claims: backendHandle.claimCount() }),
    reload: async () => reloadFiles(options, config, listeners, log),
    ownershipLost,
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function shutDown(parts: ServerParts): Promise<void> {
  const { service, backendHandle, listeners, eventLog } = parts;
  parts.isStopping = true;
  listeners.stopAccepting();
  service.drain();
  try {
    await backendHandle.close();
  } finally {
    await listeners.close();
    eventLog.close();
  }
}

/**
 * Reloads credentials and certificates. Files that cannot be used leave the previous ones in force.
 * @throws Error naming everything that was not reloaded
 */
function reloadFiles({ tls, access }: ServeOptions, config: ServerConfig, listeners: Listeners, log: Logger): void {
  const failures: string[] = [];
  const tryReload = (subject: string, work: () => string): void => {
    try {
      log(`reloaded: ${work()}`);
    } catch (error) {
      failures.push(`${subject}: ${(error as Error).message}`);
      log(`NOT reloaded; the previous ${subject} remain in use`, error, { level: "error" });
    }
  };
  if (tls !== undefined) {
    tryReload("certificates", () => {
      const tlsConfig = loadTlsConfig(tls);
      if (tlsConfig.invalidReason !== null) throw new Error(tlsConfig.invalidReason);
      listeners.replaceCertificate(tlsConfig);
      for (const warning of tlsConfig.warnings) log(warning, undefined, { level: "warn" });
      return tlsConfig.summary;
    });
  }
  if (access !== undefined && "file" in access) {
    tryReload("credentials", () => {
      const accounts = loadAccounts(access.file);
      config.access.replace(accounts);
      return `credentials of ${accounts.length} accounts`;
    });
  }
  if (failures.length > 0) throw new Error(`not reloaded: ${failures.join("; ")}`);
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
