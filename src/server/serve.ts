/** The lock server, to be embedded or run by `holdfast serve`. */

import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import type { Driver } from "../spi/driver.ts";
import type { Access } from "./access.ts";
import type { Running } from "./assembly.ts";
import { assemble } from "./assembly.ts";
import type { ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import { watchPlaces } from "./places.ts";
import type { Fault } from "./plan.ts";
import { planOf } from "./plan.ts";
import { reload } from "./reload.ts";

export type { Checked } from "./check.ts";
export { checkOptions } from "./check.ts";
export { StateError } from "./files.ts";
export type { Level, Log, LogDetails } from "./logging.ts";
export type { Fault } from "./plan.ts";

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
  readonly access?: Access | { readonly file: string };
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
  readonly log?: Log;
}

/** Whether a server could grant a lock now. */
export type Readiness = { readonly ok: true } | { readonly ok: false; readonly why: string };

/** A running lock server. */
export interface Server extends AsyncDisposable {
  /** Where it listens, in the order of `listen`; ports that were 0 are the real ones. */
  readonly addresses: readonly string[];
  /** Where it serves HTTP, as "http://host:port"; null: it does not. */
  readonly httpAddress: string | null;
  /** Names this run; every client learns it. */
  readonly start: string;
  /** Milliseconds until it grants anything new: after an unclean start clients first tell what they held; 0: it does. */
  readonly reclaimMs: number;
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
  readonly lost: Promise<string>;
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
  const { plan, faults } = planOf(options);
  if (faults.length > 0) throw errorOf(faults);
  const { clock = systemClock, log = logToConsole } = options;
  if (plan.tls !== null) log(plan.tls.told);
  for (const warning of plan.warnings) log(warning, undefined, { level: "warn" });
  const running = await assemble(options, plan, clock, log);
  const { hub, store, ports } = running;
  let closing: Promise<void> | null = null;
  let watch: { close(): void } | null = null;
  const close = (): Promise<void> => {
    watch?.close();
    closing ??= letGo(running);
    return closing;
  };
  try {
    await ports.open();
  } catch (error) {
    await close();
    throw error;
  }
  const lost = new Promise<string>((resolve) => {
    watch = watchPlaces(
      clock,
      () => store.lost() ?? ports.lost(),
      (why) => {
        log(`the server ends: ${why}`, undefined, { level: "error" });
        close().catch((error: unknown) => log("what was left could not be saved", error));
        resolve(why);
      },
    );
  });
  return {
    addresses: ports.addresses,
    httpAddress: ports.httpAddress,
    start: hub.start,
    get reclaimMs() {
      return store.backend.reclaimMs();
    },
    ready: () => running.ready(),
    stats: () => ({ sessions: store.sessions.all.size, claims: store.claims() }),
    reload: async () => reload(options, plan, ports, log),
    lost,
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function letGo(running: Running): Promise<void> {
  const { hub, store, ports, record } = running;
  running.stopping = true;
  ports.stop();
  hub.drain();
  try {
    await store.close();
  } finally {
    await ports.close();
    record.close();
  }
}

/** A wrong value is a TypeError, as everywhere. It carries the faults one by one, for who knows where they were said. */
function errorOf(faults: readonly Fault[]): Error {
  const text = faults.map(({ option, message }) => `${option}: ${message}`).join("\n");
  return Object.assign(faults.every(({ named }) => named) ? new Error(text) : new TypeError(text), { faults });
}

function logToConsole(message: string, error?: unknown): void {
  console.error(`holdfast: ${message}`, ...(error === undefined ? [] : [error]));
}
