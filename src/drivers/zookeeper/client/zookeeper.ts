/**
 * A ZooKeeper client that is safe for locks: its session ends by its own clock before a server may end it, an unknown
 * outcome is a distinct error, and no request is sent twice.
 */

import { connect, isIP, Socket } from "node:net";
import type { ConnectionOptions as TlsConnectionOptions } from "node:tls";
import { connect as connectTls, createSecureContext } from "node:tls";
import { createSocketTransport } from "../../../net/transport.ts";
import type { Clock, Timer } from "../../../util/clock.ts";
import { systemClock } from "../../../util/clock.ts";
import { parseDuration } from "../../../util/duration.ts";
import type { ServerConnector } from "./connection.ts";
import { Connection } from "./connection.ts";
import { ConnectionLossError, SessionExpiredError } from "./errors.ts";
import type { Created, CreateOptions, Step } from "./operations.ts";
import * as operations from "./operations.ts";
import { Chroot } from "./paths.ts";
import type { Acl, Stat, WatchedEvent } from "./records.ts";
import type { Request } from "./requests.ts";
import type { SaslOptions } from "./sasl.ts";
import type { RetryPolicy, ServerAddress } from "./server-list.ts";
import { exponential, FIRST_BACKOFF_MS, MAX_BACKOFF_MS } from "./server-list.ts";
import type { Watcher, WatchKind } from "./watches.ts";

/** Options of a client. */
export interface ZooKeeperOptions {
  readonly servers: readonly ServerAddress[];
  /** Prepended to every path; must exist, or be created by makeChroot(). Default: none. */
  readonly chroot?: string;
  /** How long the servers keep the session of a silent client; they limit it. Default 30 s. */
  readonly sessionMs?: number;
  /** The timeout of a request, including time without a connection. Default: the session's length, at most 10 s. */
  readonly requestMs?: number;
  /** Credentials of ZooKeeper's own schemes. Secrets. */
  readonly auth?: readonly { readonly scheme: string; readonly auth: string }[];
  /** SASL with DIGEST-MD5. */
  readonly sasl?: SaslOptions;
  /** Connects over TLS with these options of node:tls. A function is called before each connection. */
  readonly tls?: TlsOptions;
  /** The delay before the next attempt to connect. Default: exponential(20, 1_000). */
  readonly retry?: RetryPolicy;
  /** The clock, for tests. */
  readonly clock?: Clock;
  /** Makes connections; for tests. */
  readonly connector?: ServerConnector;
  readonly random?: () => number;
}

/** Events of the session. */
export interface SessionEvents {
  /** isNewSession: it is another session than before, or the first. */
  onConnected?(isNewSession: boolean): void;
  /** The connection is lost; the session may still live. */
  onSuspended?(): void;
  /** The session has ended; the servers delete its ephemeral nodes. */
  onExpired?(): void;
}

export const DEFAULT_SESSION_MS = 30_000;
/** The longest default timeout of a request: a session may be much longer. */
const MAX_REQUEST_MS = 10_000;
const CLOSE_TIMEOUT_MS = 1_000;
/** Another server is usually found within this time; after it callers should get an error that they can handle. */
const CONNECTION_WAIT_MS = 1_000;

/**
 * Options of node:tls, or a function that is called for them before each connection, so that certificates can be
 * renewed.
 */
export type TlsOptions = TlsConnectionOptions | (() => TlsConnectionOptions);

export class ZooKeeper {
  readonly #connection: Connection;
  readonly #chroot: Chroot;
  readonly #requestMs: number;
  readonly #clock: Clock;
  readonly #connectionWait: ConnectionWait;
  #events: SessionEvents = {};
  #opening: { resolve(): void; reject(error: Error): void } | null = null;

  /** @throws TypeError naming the option that is wrong */
  constructor(options: ZooKeeperOptions) {
    const { servers, chroot = "", auth = [], sasl = null, tls, clock = systemClock, random = Math.random } = options;
    const sessionMs =
      options.sessionMs === undefined ? DEFAULT_SESSION_MS : parseDuration(options.sessionMs, "sessionMs");
    this.#chroot = new Chroot(chroot);
    this.#clock = clock;
    this.#connectionWait = new ConnectionWait(clock, () => this.#connection.failure);
    this.#requestMs = parseDuration(options.requestMs ?? Math.min(sessionMs, MAX_REQUEST_MS), "requestMs");
    this.#connection = new Connection(
      {
        servers,
        connector: options.connector ?? createSocketConnector(tls),
        clock,
        random,
        retry: options.retry ?? exponential(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, random),
        sessionMs,
        auth: auth.map((credential) => ({ scheme: credential.scheme, auth: Buffer.from(credential.auth) })),
        sasl,
      },
      {
        onConnected: (isNewSession) => {
          this.#opening?.resolve();
          this.#opening = null;
          this.#connectionWait.onConnected();
          this.#events.onConnected?.(isNewSession);
        },
        onSuspended: () => {
          this.#connectionWait.onDisconnected();
          this.#events.onSuspended?.();
        },
        onExpired: () => this.#events.onExpired?.(),
        onClosed: (error) => {
          this.#opening?.reject(error);
          this.#opening = null;
          this.#connectionWait.onClosed();
        },
      },
    );
  }

  /** The id of the session; 0: there is none. */
  get sessionId(): bigint {
    return this.#connection.sessionId;
  }

  /** The session length that the servers agreed to. */
  get sessionMs(): number {
    return this.#connection.sessionMs;
  }

  /** Can requests be sent now? */
  get isConnected(): boolean {
    return this.#connection.isConnected;
  }

  /** How long the session certainly lasts, in milliseconds; 0: it may have ended. */
  remainingMs(): number {
    return this.#connection.remainingMs();
  }

  /** Settles when requests can be sent. @throws ConnectionLossError if no server has been connected for a second */
  waitConnected(): Promise<void> {
    return this.#connectionWait.wait();
  }

  /**
   * Opens the first session and settles when `prepare` has settled. `prepare` runs again if its connection is lost, so
   * it must be idempotent.
   * @throws AuthFailedError; OutdatedServerError; ConnectionLossError after a timeout or close(); the errors of
   * `prepare`
   */
  async open(
    events: SessionEvents = {},
    timeoutMs: number = Number.POSITIVE_INFINITY,
    prepare: () => Promise<void> = async () => undefined,
  ): Promise<void> {
    this.#events = events;
    const controller = new AbortController();
    const onTimeout = (): void => {
      const { failure } = this.#connection;
      const detail = failure === null ? "" : `: ${failure.message}`;
      const message = `ZooKeeper did not answer within ${timeoutMs} ms${detail}`;
      controller.abort(new ConnectionLossError(false, message, failure ?? undefined));
    };
    const timer = this.#clock.timer(onTimeout);
    timer.keepAlive(true);
    if (Number.isFinite(timeoutMs)) timer.set(this.#clock.now() + timeoutMs);
    const timeout = new Promise<never>((_, reject) => {
      controller.signal.addEventListener("abort", () => reject(controller.signal.reason), { once: true });
    });
    try {
      await Promise.race([timeout, this.#prepare(prepare, controller.signal)]);
    } finally {
      controller.abort();
      timer.stop();
    }
  }

  async #prepare(prepare: () => Promise<void>, signal: AbortSignal): Promise<void> {
    for (;;) {
      if (!this.isConnected) await this.#connect();
      if (signal.aborted) return;
      try {
        return await prepare();
      } catch (error) {
        const isLost = error instanceof ConnectionLossError || error instanceof SessionExpiredError;
        if (!isLost || this.#connection.isClosed) throw error;
      }
    }
  }

  #connect(): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      this.#opening = { resolve, reject };
      this.#connection.open();
    });
  }

  /** Sets whether the session keeps the process alive. Default: it does not. */
  keepAlive(on: boolean): void {
    this.#connection.keepAlive(on);
  }

  /**
   * Ends the session and so deletes its ephemeral nodes: at once if a server answers, otherwise when the session
   * expires.
   */
  close(): Promise<void> {
    return this.#connection.close(CLOSE_TIMEOUT_MS);
  }

  /** Disconnects without ending the session: its nodes stay until it expires. */
  abandonSession(): Promise<void> {
    return this.#connection.close(null);
  }

  /**
   * @throws ZooKeeperError NODE_EXISTS, NO_NODE (of its parent), NO_AUTH...; ConnectionLossError; SessionExpiredError;
   * as do all methods below
   */
  async create(path: string, options: CreateOptions = {}): Promise<Created> {
    const created = await this.request(operations.create(this.#chroot.toFullPath(path), options));
    return { ...created, path: this.#chroot.toRelativePath(created.path) };
  }

  delete(path: string): Promise<void> {
    return this.request(operations.remove(this.#chroot.toFullPath(path)));
  }

  /** Null: there is no such node. The watcher is called once, when the node is created, changed or deleted. */
  exists(path: string, watcher?: Watcher): Promise<Stat | null> {
    const [fullPath, onEvent] = this.#resolveWatch(path, watcher);
    const onSet = (isPresent: boolean): void => this.#addWatch(isPresent ? "data" : "exists", fullPath, onEvent);
    return this.request(operations.exists(fullPath, onEvent !== null, onSet));
  }

  /** Removes the watches on a node that does not exist and never will: they would last as long as the session. */
  async removeWatches(path: string): Promise<void> {
    const fullPath = this.#chroot.toFullPath(path);
    this.#connection.watches.forget(fullPath);
    await this.request(operations.removeWatches(fullPath));
  }

  get(path: string, watcher?: Watcher): Promise<{ readonly data: Buffer; readonly stat: Stat }> {
    const [fullPath, onEvent] = this.#resolveWatch(path, watcher);
    return this.request(
      operations.getData(fullPath, onEvent !== null, () => this.#addWatch("data", fullPath, onEvent)),
    );
  }

  /** The watcher is called once, when a child is created or deleted, or the node is deleted. */
  children(path: string, watcher?: Watcher): Promise<{ readonly names: readonly string[]; readonly stat: Stat }> {
    const [fullPath, onEvent] = this.#resolveWatch(path, watcher);
    return this.request(
      operations.getChildren(fullPath, onEvent !== null, () => this.#addWatch("children", fullPath, onEvent)),
    );
  }

  /** Later reads are at least as new as every answer that any client got before this call. */
  sync(path: string): Promise<void> {
    return this.request(operations.sync(this.#chroot.toFullPath(path)));
  }

  getAcl(path: string): Promise<readonly Acl[]> {
    return this.request(operations.getAcl(this.#chroot.toFullPath(path)));
  }

  /** All steps, or none. */
  multi(steps: readonly Step[]): Promise<void> {
    const fullSteps = steps.map((step) => ({ ...step, path: this.#chroot.toFullPath(step.path) }));
    return this.request(operations.multi(fullSteps));
  }

  whoAmI(): Promise<readonly { readonly scheme: string; readonly user: string }[]> {
    return this.request(operations.whoAmI());
  }

  /** The servers of the ensemble from its configuration; empty: it is a single server. */
  async members(): Promise<readonly string[]> {
    const { data } = await this.request(operations.getData("/zookeeper/config", false, () => undefined));
    return data
      .toString("utf8")
      .split("\n")
      .filter((line) => line.startsWith("server."));
  }

  /** The path below which this client sees its nodes; "/": it sees all. */
  get chroot(): string {
    return this.#chroot.toFullPath("/");
  }

  /** Sends a request, whose paths include the chroot. */
  request<T>(request: Request<T>): Promise<T> {
    return this.#connection.request(request, this.#requestMs);
  }

  #resolveWatch(path: string, watcher: Watcher | undefined): readonly [string, Watcher | null] {
    const fullPath = this.#chroot.toFullPath(path);
    if (watcher === undefined) return [fullPath, null];
    const onEvent = (event: WatchedEvent | null): void =>
      watcher(event === null ? null : { ...event, path: this.#chroot.toRelativePath(event.path) });
    return [fullPath, onEvent];
  }

  #addWatch(kind: WatchKind, path: string, watcher: Watcher | null): void {
    if (watcher !== null) this.#connection.watches.add(kind, path, watcher);
  }
}

/**
 * Connects over TCP, or over TLS if it has options. The host name is resolved for each connection.
 * @throws TypeError if TLS cannot use the options; invalid options from a function fail their connection instead
 */
function createSocketConnector(tls: TlsOptions | undefined): ServerConnector {
  if (typeof tls === "object") validateTls(tls);
  return (address, events) => {
    const connectedEvent = tls === undefined ? "connect" : "secureConnect";
    return createSocketTransport(openSocket(address, tls), events, toHandshakeError, connectedEvent);
  };
}

/** The text of OpenSSL names its source code, and goes over two lines; what the other side says of the client is in the reason. */
function toHandshakeError(error: Error): Error {
  const { reason, code } = error as Error & { readonly reason?: string; readonly code?: string };
  const [, alert] = /alert (.+)$/.exec(reason ?? "") ?? [];
  if (alert === undefined) return error;
  const remedy = alert.includes("cert") ? ": see whether the client's certificate is valid and signed by its CA" : "";
  return Object.assign(new Error(`the server refused the TLS connection (${alert})${remedy}`), { code });
}

function validateTls(options: TlsConnectionOptions): void {
  try {
    createSecureContext(options);
  } catch (cause) {
    throw new TypeError(`tls cannot be used: ${(cause as Error).message}`, { cause });
  }
}

function openSocket({ host, port }: ServerAddress, tls: TlsOptions | undefined): Socket {
  if (tls === undefined) return connect({ host, port, noDelay: true });
  try {
    const options = typeof tls === "function" ? tls() : tls;
    // TLS does not allow an address as the requested name (SNI); the certificate is still checked for it
    const servername = isIP(host) === 0 ? { servername: host } : {};
    // set explicitly, since NODE_TLS_REJECT_UNAUTHORIZED would change the default
    return connectTls({ host, port, ...servername, rejectUnauthorized: true, ...options }).setNoDelay(true);
  } catch (error) {
    // reported as an event, like every other failure to connect
    return new Socket().destroy(error as Error);
  }
}

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

/** Callers wait briefly while no server is connected, then fail. */
class ConnectionWait {
  readonly #clock: Clock;
  readonly #getFailure: () => Error | null;
  readonly #timer: Timer;
  #waiters: Waiter[] = [];
  #waitUntil = 0;
  #isConnected = false;

  /** getFailure: the error of the last attempt to connect. */
  constructor(clock: Clock, getFailure: () => Error | null) {
    this.#clock = clock;
    this.#getFailure = getFailure;
    this.#timer = clock.timer(() => this.#rejectAll());
  }

  /** Settles when a server is connected. @throws ConnectionLossError if none has been connected for a second */
  wait(): Promise<void> {
    if (this.#isConnected) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      if (this.#clock.now() >= this.#waitUntil) this.#rejectAll();
    });
  }

  onConnected(): void {
    this.#isConnected = true;
    this.#timer.set(null);
    for (const { resolve } of this.#waiters.splice(0)) resolve();
  }

  onDisconnected(): void {
    this.#isConnected = false;
    this.#waitUntil = this.#clock.now() + CONNECTION_WAIT_MS;
    this.#timer.set(this.#waitUntil);
  }

  onClosed(): void {
    this.#isConnected = false;
    this.#waitUntil = 0;
    this.#timer.stop();
    this.#rejectAll();
  }

  #rejectAll(): void {
    const failure = this.#getFailure();
    const message = `ZooKeeper: no server is connected${failure === null ? "" : `: ${failure.message}`}`;
    const error = new ConnectionLossError(false, message, failure ?? undefined);
    for (const { reject } of this.#waiters.splice(0)) reject(error);
  }
}
