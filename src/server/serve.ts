/** The lock server, to be embedded or run by `holdfast serve`. */

import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import { newId } from "../ids.ts";
import { VERSION } from "../protocol/hello.ts";
import type { Driver } from "../spi/driver.ts";
import type { Access } from "./access.ts";
import type { Backend } from "./backend.ts";
import { elect } from "./election.ts";
import { Hub } from "./hub.ts";
import type { ServerLimits } from "./limits.ts";
import type { Listener } from "./listen.ts";
import { addressOf, listen } from "./listen.ts";
import type { Log } from "./logging.ts";
import { openKeeper } from "./opening.ts";
import { processState } from "./processes.ts";
import { openRelay } from "./relay.ts";
import type { Sessions } from "./session.ts";
import { openState } from "./state.ts";

export { StateError } from "./files.ts";
export type { Level, Log, LogDetails } from "./logging.ts";

/** How long a session lasts in silence. */
const SESSION_MS = 30_000;

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
   * The folder that keeps what survives a restart; made if its parent exists or can be made. "none": nothing is kept;
   * every start then grants nothing for 60 s, and no lease may be longer. Required unless `driver` is given.
   */
  readonly state?: string;
  /** Serves this store instead of a table of its own: a plain relay. It is opened and closed by the server. */
  readonly driver?: Driver;
  /** Who may do what; a file is read again by reload(). Default: whoever can connect may do everything. */
  readonly access?: Access | { readonly file: string };
  /** Needed for "tls://" addresses, and for `http` that other machines reach. */
  readonly tls?: TlsFiles;
  /** Serves HTTP at "host:port", too; with TLS if the address is not loopback. Default: it does not. */
  readonly http?: string;
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
  /** How many clients have a connection, and how many claims there are. */
  stats(): { readonly sessions: number; readonly claims: number };
  /**
   * Reads credentials and certificates again; no connection ends for it. What cannot be used is left as it was, and
   * logged.
   * @throws Error naming what was left
   */
  reload(): Promise<void>;
  /** Grants nothing more, tells the clients, saves the state and lets go of everything. Takes at most a few seconds. */
  close(): Promise<void>;
}

/** What stands behind a server's hub. */
interface Store {
  readonly backend: Backend;
  readonly sessions: Sessions;
  claims(): number;
  /** After the clients were told. */
  close(): Promise<void>;
}

/**
 * Runs a lock server in this process.
 * @throws TypeError for options that mean nothing; StateError if the state cannot be used; Error of the system if an
 * address cannot be had
 */
export async function serve(options: ServeOptions): Promise<Server> {
  const { clock = systemClock, log = logToConsole } = options;
  const addresses = (typeof options.listen === "string" ? [options.listen] : options.listen).map(addressOf);
  if (addresses.length === 0) throw new TypeError("listen must name at least one address");
  const remote = addresses.some((address) => !("path" in address));
  const store = await openStore(options, clock, log, remote);
  const start = newId().slice(0, 8);
  const hub = new Hub({ backend: store.backend, sessions: store.sessions, clock, start, version: VERSION, log });
  const listeners: Listener[] = [];
  const locks: { close(): void }[] = [];
  let closing: Promise<void> | null = null;

  async function letGo(): Promise<void> {
    for (const listener of listeners) listener.stop();
    hub.drain();
    try {
      await store.close();
    } finally {
      await Promise.all(listeners.map((listener) => listener.close()));
      for (const lock of locks) lock.close();
    }
  }
  const close = (): Promise<void> => (closing ??= letGo());

  try {
    for (const address of addresses) {
      if ("path" in address) locks.push(await socketLock(address.path));
      listeners.push(await listen(address, hub));
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    addresses: listeners.map(({ address }) => address),
    httpAddress: null,
    start,
    get reclaimMs() {
      return store.backend.reclaimMs();
    },
    ready: () => ({ ok: true }),
    reload: async () => undefined,
    stats: () => ({ sessions: store.sessions.all.size, claims: store.claims() }),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function openStore(
  options: ServeOptions,
  clock: Clock,
  log: Log,
  remote: boolean,
): Promise<Store> {
  const { driver, state } = options;
  if (driver !== undefined) {
    if (state !== undefined) throw new TypeError("state belongs to the server's own table: a driver keeps its own");
    return openRelay({ driver, clock, sessionMs: SESSION_MS, probe: processState, log });
  }
  if (typeof state !== "string" || state === "") throw new TypeError('state must be a folder or "none"');
  const disk = state === "none" ? null : await openState(state, elect);
  try {
    const opened = await openKeeper({ clock, disk, sessionMs: SESSION_MS, remote, probe: processState, log });
    return {
      backend: opened.keeper,
      sessions: opened.sessions,
      claims: () => opened.keeper.table.entries.size,
      async close() {
        opened.keeper.drain();
        try {
          await opened.save();
        } catch (error) {
          log("the state could not be saved: the next start will ask the clients what they hold", error);
        } finally {
          await disk?.close();
        }
      },
    };
  } catch (error) {
    await disk?.close();
    throw error;
  }
}

/** Only who holds it may listen on the path, or remove a socket that nobody listens on. */
async function socketLock(path: string): Promise<{ close(): void }> {
  const lock = await elect(`${path}.lock`);
  if (lock === null) throw new Error(`another server listens on ${path}`);
  return lock;
}

function logToConsole(message: string, error?: unknown): void {
  console.error(`holdfast: ${message}`, ...(error === undefined ? [] : [error]));
}
