/** The lock server, embedded in a program or run by `holdfast serve`. */

import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import type { AccessControl } from "./auth/access-control.ts";
import type { ServerParts } from "./compose.ts";
import { composeServer } from "./compose.ts";
import type { ConfigProblem } from "./config/config.ts";
import { resolveConfig } from "./config/config.ts";
import type { ServerLimits } from "./config/limits.ts";
import type { Logger } from "./config/logger.ts";
import { monitorOwnership } from "./ownership-monitor.ts";
import { reloadFiles } from "./reload.ts";

export type { ConfigProblem } from "./config/config.ts";
export type { LogFields, Logger, LogLevel } from "./config/logger.ts";
export type { PreflightResult } from "./config/preflight.ts";
export { checkOptions } from "./config/preflight.ts";
export { StateError } from "./storage/private-files.ts";

/** The PEM files of a TLS server. They are read at the start and again by reload(). */
export interface TlsFiles {
  /** The certificate, followed by its intermediate certificates. */
  readonly cert: string;
  /** The private key of the certificate. */
  readonly key: string;
  /** Requires of every client a certificate signed by one of these CAs. Default: none is required. */
  readonly clientCa?: string;
}

/** Options of a lock server. */
export interface ServeOptions {
  /**
   * Where to listen: "unix:/path", "tcp://127.0.0.1:7420", "tls://0.0.0.0:7420" (port 0: any free port). An address
   * that other machines can reach requires `access` and TLS, or `insecure`.
   */
  readonly listen: string | readonly string[];
  /**
   * The directory for the state that survives a restart; created if it is missing. With an empty one no lock can be
   * held, and locks are granted at once. "none": nothing is saved; every start then grants no new locks for 60 s, and
   * no lease may be longer than that. Required unless `driver` is given.
   */
  readonly state?: string;
  /**
   * This is the first start: no lock of an earlier run can be held. Skips the 60 s of `state: "none"`, once; a
   * directory that has been in use is refused. Default false.
   */
  readonly firstStart?: boolean;
  /** Serves this store as a proxy instead of a lock table of its own. The server opens and closes the driver. */
  readonly driver?: Driver;
  /** Which client may do what; a file is read again by reload(). Default: every client may do everything. */
  readonly access?: AccessControl | { readonly file: string };
  /** Required for "tls://" addresses, and for an `http` address that other machines can reach. */
  readonly tls?: TlsFiles;
  /** Also serves HTTP at this "host:port", with TLS unless the address is a loopback address. Default: no HTTP. */
  readonly http?: string;
  /** Host names that HTTP clients may use for the server, besides its address and the names in its certificate. */
  readonly httpNames?: readonly string[];
  /** Limits that differ from the defaults. */
  readonly limits?: Partial<ServerLimits>;
  /** Allows other machines to connect without TLS or without credentials. Default false. */
  readonly insecure?: boolean;
  /** The clock, for tests. Default: the system clock. */
  readonly clock?: Clock;
  /** Receives the log messages. Default: console.error. */
  readonly log?: Logger;
}

/** Whether a server can grant a lock now. */
export type Readiness = { readonly ok: true } | { readonly ok: false; readonly reason: string };

/** A running lock server. */
export interface Server extends AsyncDisposable {
  /** Listening addresses in the order of `listen`, with the actual port in place of a port 0. */
  readonly addresses: readonly string[];
  /** The HTTP address as "http://host:port"; null if HTTP is not served. */
  readonly httpAddress: string | null;
  /** Identifies this run; every client receives it. */
  readonly runId: string;
  /** Milliseconds until recovery ends and new locks are granted; 0 when not recovering. */
  readonly recoveryRemainingMs: number;
  /** Whether it can grant a lock now, and if not, why. */
  ready(): Readiness;
  /** The number of known clients, connected or not, and of claims, waiting and held. */
  stats(): { readonly sessions: number; readonly claims: number };
  /**
   * Reads credentials and certificates again; connections stay open. Files that cannot be used are logged, and the
   * previous ones stay in force.
   * @throws Error naming what was not reloaded
   */
  reload(): Promise<void>;
  /**
   * Settles with a reason if the server stops by itself: one of its sockets, or the lock file of its state, was removed
   * or replaced, so that another server could grant the same locks. The server has stopped granting by then and is
   * closing.
   */
  readonly ownershipLost: Promise<string>;
  /**
   * Stops granting, informs the clients, saves the state and releases all resources: within a few seconds, unless the
   * disk hangs. It is safe to give up waiting only if the process then exits, as `holdfast serve` does after 10 s: a
   * late write would overwrite the state of the next server.
   * @throws (rejects) StateError if the state could not be saved; all resources are released even so
   */
  close(): Promise<void>;
}

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
