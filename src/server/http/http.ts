/** The HTTP port: a JSON API enough to hold a lock with curl, health, metrics and events (design A.8). Loaded on demand. */

import type { Server as HttpServer, ServerOptions } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Clock } from "../../clock.ts";
import type { Access } from "../access.ts";
import type { Backend } from "../backend.ts";
import type { ServerLimits } from "../limits.ts";
import type { Log } from "../logging.ts";
import type { Record } from "../record.ts";

/** What the HTTP port is made of. */
export interface HttpOptions {
  readonly backend: Backend;
  /** Called after every call of the backend: passes on what it brought about, and sets the server's timer. */
  readonly settle: () => void;
  /** Who may do what. */
  readonly access: Access;
  readonly limits: ServerLimits;
  /** What has happened: for /events. */
  readonly record: Record;
  /** The text of /metrics. */
  readonly metrics: () => string;
  /** Could the server grant a lock now, and if not, why? For /ready. */
  readonly ready: () => { readonly ok: boolean; readonly why?: string };
  readonly clock: Clock;
  readonly log: Log;
  /** Of this program, for people. */
  readonly version: string;
  /** The host that was asked to be listened on: what a Host header may name besides the address itself. */
  readonly host: string;
  /** Further names by which clients call the server: a Host header that is none of them is refused (DNS rebinding). */
  readonly names?: readonly string[];
}

/** The HTTP side of a server. */
export interface Http {
  /** For createServer() of node:http, or, with certificates added, of node:https. */
  readonly serverOptions: ServerOptions;
  /** Makes a server of node:http or node:https, which is not listening yet, serve it. */
  attach(server: HttpServer | HttpsServer): void;
  /**
   * Ends long waits (their places stay, as at the end of every wait), event streams and idle connections; whatever
   * comes from now on is answered that the server goes. Then close() the server itself.
   */
  drain(): void;
  /** Lets go of the places that are still waited for. */
  close(): void;
}

/** Makes the HTTP side of a server. It opens no port. */
export function createHttp(_options: HttpOptions): Http {
  throw new Error("not built yet");
}
