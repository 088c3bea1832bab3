/** The lock server, to be embedded or run by `holdfast serve`. */

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

/** The files of a TLS server, PEM each. They are read at the start and again by reload(). */
export interface TlsFiles {
  /** The certificate, with what leads to its issuer behind it. */
  readonly cert: string;
  /** The private key of the certificate. */
  readonly key: string;
  /** Demands of every client a certificate that these issuers have signed. Default: none is asked for. */
  readonly clientCa?: string;
}

/** How a lock server is to run. */
export interface ServeOptions {
  /**
   * Where to listen: "unix:/path", "tcp://127.0.0.1:7420", "tls://0.0.0.0:7420" (port 0: any). An address that other
   * machines reach needs `access` and TLS, or `insecure`.
   */
  readonly listen: string | readonly string[];
  /**
   * The folder that keeps what survives a restart; made if it is missing. In an empty one nothing can be held, and locks are
   * granted at once. "none": nothing is kept; every start then grants nothing for 60 s, and no lease may be longer. Required
   * unless `driver` is given.
   */
  readonly state?: string;
  /**
   * This is the first start: nothing that an earlier run granted can be held. Skips the 60 s of `state: "none"`, once; with a
   * folder, one that has been in use is refused. Default false.
   */
  readonly firstStart?: boolean;
  /** Serves this store instead of a table of its own: a plain relay. It is opened and closed by the server. */
  readonly driver?: Driver;
  /** Who may do what; a file is read again by reload(). Default: whoever can connect may do everything. */
  readonly access?: AccessControl | { readonly file: string };
  /** Needed for "tls://" addresses, and for `http` that other machines reach. */
  readonly tls?: TlsFiles;
  /** Serves HTTP at "host:port", too; with TLS if the address is not loopback. Default: it does not. */
  readonly http?: string;
  /** Names by which HTTP clients call the server, besides its address and the names of its certificate. */
  readonly httpNames?: readonly string[];
  /** Bounds other than the usual ones. */
  readonly limits?: Partial<ServerLimits>;
  /** Other machines may connect without TLS, or without credentials. Default false. */
  readonly insecure?: boolean;
  /** Time; for tests. Default: the machine's. */
  readonly clock?: Clock;
  /** Told what people should know. Default: console.error. */
  readonly log?: Logger;
}

/** Whether a server could grant a lock now. */
export type Readiness = { readonly ok: true } | { readonly ok: false; readonly reason: string };

/** A running lock server. */
export interface Server extends AsyncDisposable {
  /** Where it listens, in the order of `listen`; ports that were 0 are the real ones. */
  readonly addresses: readonly string[];
  /** Where it serves HTTP, as "http://host:port"; null: it does not. */
  readonly httpAddress: string | null;
  /** Names this run; every client learns it. */
  readonly runId: string;
  /** Milliseconds until it grants anything new: after an unclean start clients first tell what they held; 0: it does. */
  readonly recoveryRemainingMs: number;
  /** Could it grant a lock now, and if not, why? */
  ready(): Readiness;
  /** How many clients it knows, connected or not, and how many claims there are, waiting and held. */
  stats(): { readonly sessions: number; readonly claims: number };
  /**
   * Reads credentials and certificates again; no connection ends for it. What cannot be used is left as it was, and
   * logged.
   * @throws Error naming what was left
   */
  reload(): Promise<void>;
  /**
   * Settles, saying why, when the server ends by itself: a socket that it listens on, or the lock of its state, was removed or
   * replaced, so that another server could be granting beside it. It has stopped granting then, and is closing.
   */
  readonly ownershipLost: Promise<string>;
  /**
   * Grants nothing more, tells the clients, saves the state and lets go of everything: within a few seconds, unless the
   * disk hangs. Giving up on it then is safe only if the process ends, as that of `holdfast serve` does after 10 s: what
   * is written late would be written over the state of the next server.
   * @throws (rejects) StateError if the state could not be saved; all is let go of nevertheless
   */
  close(): Promise<void>;
}

/**
 * Runs a lock server in this process.
 * @throws TypeError for options that mean nothing; Error naming a file that cannot be used; StateError if the state
 * cannot be used; Error of the system, naming the address, if one cannot be had
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
        log(`the server ends: ${reason}`, undefined, { level: "error" });
        close().catch((error: unknown) => log("what was left could not be saved", error));
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

/** A wrong value is a TypeError, as everywhere. It carries the faults one by one, for who knows where they were said. */
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
