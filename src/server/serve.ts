/** The lock server, to be embedded or run by `holdfast serve`. */

import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import { newId } from "../ids.ts";
import { VERSION } from "../protocol/hello.ts";
import type { Driver } from "../spi/driver.ts";
import type { Backend } from "./backend.ts";
import { elect } from "./election.ts";
import { Hub } from "./hub.ts";
import type { Listener } from "./listen.ts";
import { addressOf, listen } from "./listen.ts";
import { openKeeper } from "./opening.ts";
import { processState } from "./processes.ts";
import { openRelay } from "./relay.ts";
import type { Sessions } from "./session.ts";
import { openState } from "./state.ts";

export { StateError } from "./files.ts";

/** How long a session lasts in silence. */
const SESSION_MS = 30_000;

/** How a lock server is to run. */
export interface ServeOptions {
  /** Where to listen: "unix:/path" and "tcp://127.0.0.1:port" (port 0: any). Only addresses of this machine. */
  readonly listen: string | readonly string[];
  /**
   * The folder that keeps what survives a restart; made if its parent exists or can be made. "none": nothing is kept;
   * every start then grants nothing for 60 s, and no lease may be longer. Required unless `driver` is given.
   */
  readonly state?: string;
  /** Serves this store instead of a table of its own: a plain relay. It is opened and closed by the server. */
  readonly driver?: Driver;
  /** Time; for tests. Default: the machine's. */
  readonly clock?: Clock;
  /** Told what people should know: one line, and the error where there is one. Default: console.error. */
  readonly log?: (message: string, error?: unknown) => void;
}

/** A running lock server. */
export interface Server extends AsyncDisposable {
  /** Where it listens, in the order of `listen`; ports that were 0 are the real ones. */
  readonly addresses: readonly string[];
  /** Names this run; every client learns it. */
  readonly start: string;
  /** Milliseconds until it grants anything new: after an unclean start clients first tell what they held; 0: it does. */
  readonly reclaimMs: number;
  /** How many clients have a connection, and how many claims there are. */
  stats(): { readonly sessions: number; readonly claims: number };
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
    start,
    get reclaimMs() {
      return store.backend.reclaimMs();
    },
    stats: () => ({ sessions: store.sessions.all.size, claims: store.claims() }),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function openStore(
  options: ServeOptions,
  clock: Clock,
  log: NonNullable<ServeOptions["log"]>,
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
