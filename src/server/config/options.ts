/** The public options and types of a lock server. */

import type { AccessControl } from "../../auth/access-control.ts";
import type { Clock } from "../../util/clock.ts";
import type { ServerLimits } from "../limits.ts";
import type { Logger } from "../logger.ts";
import type { TlsFiles } from "../net/tls-config.ts";
import type { Readiness } from "../status.ts";

/** Options of a lock server. */
export interface ServeOptions {
  /**
   * Where to listen: "holdfast+unix:/path", "holdfast://127.0.0.1:7420", "holdfasts://0.0.0.0:7420" (port 0: any free
   * port). An address that other machines can reach requires `access` and TLS, or `insecure`.
   */
  readonly listen: string | readonly string[];
  /**
   * The directory for the state that survives a restart; created if it is missing. With an empty one no lock can be
   * held, and locks are granted at once. "none": nothing is saved; every start then grants no new locks for 60 s, and
   * no lease may be longer than that.
   */
  readonly state: string;
  /**
   * This is the first start: no lock of an earlier run can be held. Skips the 60 s of `state: "none"`, once; a
   * directory that has been in use is refused. Default false.
   */
  readonly firstStart?: boolean;
  /** Which client may do what; a file is read again by reload(). Default: every client may do everything. */
  readonly access?: AccessControl | { readonly file: string };
  /** Required for "holdfasts://" addresses, and for an `http` address that other machines can reach. */
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
