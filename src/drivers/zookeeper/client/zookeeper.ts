/**
 * A ZooKeeper client that can be trusted with locks: its session ends by our own clock before a server may end it, requests
 * whose outcome is unknown say so, and nothing is sent twice.
 */

import type { Clock } from "../../../clock.ts";
import { systemClock } from "../../../clock.ts";
import { durationMs } from "../../../duration.ts";
import type { Request } from "./calls.ts";
import { Connection } from "./connection.ts";
import { ConnectionLossError, isRefusal, SessionExpiredError } from "./errors.ts";
import type { Created, CreateOptions, Step } from "./operations.ts";
import * as operations from "./operations.ts";
import { Chroot } from "./paths.ts";
import { Reach } from "./reach.ts";
import { makePath } from "./recipes.ts";
import type { Acl, Stat, WatchedEvent } from "./records.ts";
import type { RetryPolicy } from "./retry.ts";
import { exponential, FIRST_REST_MS, LONGEST_REST_MS } from "./retry.ts";
import type { SaslOptions } from "./sasl.ts";
import type { ServerAddress } from "./servers.ts";
import type { Watcher, WatchKind } from "./watches.ts";
import type { Dial, TlsOptions } from "./wire.ts";
import { netDial } from "./wire.ts";

/** How a client is made. */
export interface ZooKeeperOptions {
  readonly servers: readonly ServerAddress[];
  /** Stands before every path; must exist, or be made by makeChroot(). Default: none. */
  readonly chroot?: string;
  /** How long the servers keep the session without hearing of us; they have bounds of their own. Default 30 s. */
  readonly sessionMs?: number;
  /** How long a request may take, the time without a connection included. Default: the session's length, at most 10 s. */
  readonly requestMs?: number;
  /** Credentials of ZooKeeper's own schemes. Secrets. */
  readonly auth?: readonly { readonly scheme: string; readonly auth: string }[];
  /** SASL with DIGEST-MD5. */
  readonly sasl?: SaslOptions;
  /** Over TLS, with these options of node:tls; a function is asked for them before each connection. */
  readonly tls?: TlsOptions;
  /** How long to rest before another connection is tried. Default: exponential(20, 1_000). */
  readonly retry?: RetryPolicy;
  /** Time, for tests. */
  readonly clock?: Clock;
  /** Connections, for tests. */
  readonly dial?: Dial;
  readonly random?: () => number;
}

/** What happens to the session. */
export interface SessionEvents {
  /** renewed: it is another session than before, or the first. */
  connected?(renewed: boolean): void;
  /** The connection is lost; the session may still live. */
  suspended?(): void;
  /** The session is over, and its ephemeral nodes are going. */
  expired?(): void;
}

export const DEFAULT_SESSION_MS = 30_000;
/** Whoever has no answer by then may well ask what became of it; a session may be longer. */
const MOST_REQUEST_MS = 10_000;
const CLOSE_MS = 2_000;

export class ZooKeeper {
  readonly #connection: Connection;
  readonly #chroot: Chroot;
  readonly #requestMs: number;
  readonly #clock: Clock;
  readonly #reach: Reach;
  #events: SessionEvents = {};
  #opening: { resolve(): void; reject(error: Error): void } | null = null;

  /** @throws TypeError naming the option that is wrong */
  constructor(options: ZooKeeperOptions) {
    const { servers, chroot = "", auth = [], sasl = null, tls, clock = systemClock, random = Math.random } = options;
    const sessionMs = options.sessionMs === undefined ? DEFAULT_SESSION_MS : durationMs(options.sessionMs, "sessionMs");
    this.#chroot = new Chroot(chroot);
    this.#clock = clock;
    this.#reach = new Reach(clock, () => this.#connection.failure);
    this.#requestMs = durationMs(options.requestMs ?? Math.min(sessionMs, MOST_REQUEST_MS), "requestMs");
    this.#connection = new Connection(
      {
        servers,
        dial: options.dial ?? netDial(tls),
        clock,
        random,
        retry: options.retry ?? exponential(FIRST_REST_MS, LONGEST_REST_MS, random),
        sessionMs,
        auth: auth.map((one) => ({ scheme: one.scheme, auth: Buffer.from(one.auth) })),
        sasl,
      },
      {
        connected: (renewed) => {
          this.#opening?.resolve();
          this.#opening = null;
          this.#reach.up();
          this.#events.connected?.(renewed);
        },
        suspended: () => {
          this.#reach.down();
          this.#events.suspended?.();
        },
        expired: () => this.#events.expired?.(),
        over: (error) => {
          this.#opening?.reject(error);
          this.#opening = null;
          this.#reach.over();
        },
      },
    );
  }

  /** 0: there is no session. */
  get sessionId(): bigint {
    return this.#connection.sessionId;
  }

  /** What the servers agreed to. */
  get sessionMs(): number {
    return this.#connection.sessionMs;
  }

  /** Can requests leave now? */
  get isConnected(): boolean {
    return this.#connection.isUp;
  }

  /** Milliseconds for which the session cannot have ended yet, whatever the servers think; 0: it may have. */
  leftMs(): number {
    return this.#connection.leftMs();
  }

  /** Settles when requests can leave: at once, or soon. @throws ConnectionLossError if no server has been connected for a second */
  reach(): Promise<void> {
    return this.#reach.wait();
  }

  /**
   * Settles with the first session, when what `prepare` asks of it is done. That is begun again when the connection under it
   * is lost, so it must be harmless to do it twice.
   * @throws AuthFailedError; OutdatedServerError; ConnectionLossError when it is closed before, or too late; what `prepare` throws
   */
  async open(
    events: SessionEvents = {},
    withinMs: number = Number.POSITIVE_INFINITY,
    prepare: () => Promise<void> = async () => undefined,
  ): Promise<void> {
    this.#events = events;
    const over = new AbortController();
    const late = (): void => {
      const { failure } = this.#connection;
      const why = failure === null ? "" : `: ${failure.message}`;
      const message = `ZooKeeper did not answer within ${withinMs} ms${why}`;
      over.abort(new ConnectionLossError(false, message, failure ?? undefined));
    };
    const timer = this.#clock.timer(late);
    timer.keepAlive(true);
    if (Number.isFinite(withinMs)) timer.set(this.#clock.now() + withinMs);
    const ended = new Promise<never>((_, reject) => {
      over.signal.addEventListener("abort", () => reject(over.signal.reason), { once: true });
    });
    try {
      await Promise.race([ended, this.#prepared(prepare, over.signal)]);
    } finally {
      over.abort();
      timer.stop();
    }
  }

  async #prepared(prepare: () => Promise<void>, signal: AbortSignal): Promise<void> {
    for (;;) {
      if (!this.isConnected) await this.#connected();
      if (signal.aborted) return;
      try {
        return await prepare();
      } catch (error) {
        const isLost = error instanceof ConnectionLossError || error instanceof SessionExpiredError;
        if (!isLost || this.#connection.isOver) throw error;
      }
    }
  }

  #connected(): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      this.#opening = { resolve, reject };
      this.#connection.open();
    });
  }

  /** Is the process to be kept alive for the session's sake? Not by default. */
  need(on: boolean): void {
    this.#connection.need(on);
  }

  /** Ends the session, and with it its ephemeral nodes: at once where a server can be told, else after the session's time. */
  close(): Promise<void> {
    return this.#connection.close(CLOSE_MS);
  }

  /** Lets go of the servers without a word: the session's nodes stay until its time has passed. */
  leave(): Promise<void> {
    return this.#connection.close(null);
  }

  /** @throws ZooKeeperError NODE_EXISTS, NO_NODE (of its parent), NO_AUTH...; ConnectionLossError; SessionExpiredError; so do all below */
  async create(path: string, options: CreateOptions = {}): Promise<Created> {
    const created = await this.#ask(operations.create(this.#chroot.out(path), options));
    return { ...created, path: this.#chroot.in(created.path) };
  }

  delete(path: string, version?: number): Promise<void> {
    return this.#ask(operations.remove(this.#chroot.out(path), version));
  }

  /** Null: there is no such node. The watcher is told once when the node is made, changed or deleted. */
  exists(path: string, watcher?: Watcher): Promise<Stat | null> {
    const [whole, told] = this.#watched(path, watcher);
    const watched = (there: boolean): void => this.#watch(there ? "data" : "exists", whole, told);
    return this.#ask(operations.exists(whole, told !== null, watched));
  }

  /** Takes back the watches on a node that was not there, and never will be: else they stay as long as the session. */
  async forget(path: string): Promise<void> {
    const whole = this.#chroot.out(path);
    this.#connection.watches.forget(whole);
    try {
      await this.#ask(operations.removeWatches(whole, "any"));
    } catch (error) {
      if (!isRefusal(error, "NO_WATCHER")) throw error;
    }
  }

  get(path: string, watcher?: Watcher): Promise<{ readonly data: Buffer; readonly stat: Stat }> {
    const [whole, told] = this.#watched(path, watcher);
    return this.#ask(operations.get(whole, told !== null, () => this.#watch("data", whole, told)));
  }

  set(path: string, data: Uint8Array, version?: number): Promise<Stat> {
    return this.#ask(operations.set(this.#chroot.out(path), data, version));
  }

  /** The watcher is told once when a child comes or goes, or the node is deleted. */
  children(path: string, watcher?: Watcher): Promise<{ readonly names: readonly string[]; readonly stat: Stat }> {
    const [whole, told] = this.#watched(path, watcher);
    return this.#ask(operations.children(whole, told !== null, () => this.#watch("children", whole, told)));
  }

  /** What is read after it is at least as new as what anybody had been answered before it was asked. */
  sync(path: string): Promise<void> {
    return this.#ask(operations.sync(this.#chroot.out(path)));
  }

  /** Makes the node that stands before every path, if it is not there. */
  async makeChroot(acl: readonly Acl[]): Promise<void> {
    const whole = {
      create: (path: string, options: CreateOptions = {}) => this.#ask(operations.create(path, options)),
      exists: (path: string) => this.#ask(operations.exists(path, false, () => undefined)),
    };
    const path = this.#chroot.out("/");
    if (path !== "/") await makePath(whole, path, acl);
  }

  getAcl(path: string): Promise<readonly Acl[]> {
    return this.#ask(operations.getAcl(this.#chroot.out(path)));
  }

  setAcl(path: string, acl: readonly Acl[], version?: number): Promise<void> {
    return this.#ask(operations.setAcl(this.#chroot.out(path), acl, version));
  }

  /** All steps, or none. */
  async multi(steps: readonly Step[]): Promise<readonly (string | null)[]> {
    const whole = steps.map((step) => ({ ...step, path: this.#chroot.out(step.path) }));
    const { paths } = await this.#ask(operations.multi(whole));
    return paths.map((path) => (path === null ? null : this.#chroot.in(path)));
  }

  /** Watches a node and its list of children, or with `recursive` it and all below, until stopped or the session is over. */
  async addWatch(path: string, recursive: boolean, watcher: Watcher): Promise<{ stop(): Promise<void> }> {
    const [whole, told] = this.#watched(path, watcher);
    const kind: WatchKind = recursive ? "recursive" : "persistent";
    await this.#ask(operations.addWatch(whole, recursive, () => this.#watch(kind, whole, told)));
    return {
      stop: async () => {
        if (told === null || !this.#connection.watches.remove(kind, whole, told)) return;
        await this.#ask(operations.removeWatches(whole, "any"));
      },
    };
  }

  whoAmI(): Promise<readonly { readonly scheme: string; readonly user: string }[]> {
    return this.#ask(operations.whoAmI());
  }

  /** The servers of the ensemble as its configuration names them; none: it is one server alone. */
  async members(): Promise<readonly string[]> {
    const { data } = await this.#ask(operations.get("/zookeeper/config", false, () => undefined));
    return data
      .toString("utf8")
      .split("\n")
      .filter((line) => line.startsWith("server."));
  }

  #ask<T>(request: Request<T>): Promise<T> {
    return this.#connection.ask(request, this.#requestMs);
  }

  #watched(path: string, watcher: Watcher | undefined): readonly [string, Watcher | null] {
    const whole = this.#chroot.out(path);
    if (watcher === undefined) return [whole, null];
    const told = (event: WatchedEvent | null): void =>
      watcher(event === null ? null : { ...event, path: this.#chroot.in(event.path) });
    return [whole, told];
  }

  #watch(kind: WatchKind, path: string, watcher: Watcher | null): void {
    if (watcher !== null) this.#connection.watches.add(kind, path, watcher);
  }
}

/** Is this a request whose outcome nobody knows? Then whoever asked must look. */
export function isUnknown(error: unknown): boolean {
  return error instanceof ConnectionLossError && error.sent;
}
