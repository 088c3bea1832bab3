/**
 * The connections of one driver, beside the user's pool: one shared by all locks that were free when they were asked
 * for, and one for each lock that had to be waited for, until it is released.
 */

import type { DedicatedConnection } from "../clients/types.ts";
import type { SessionIdentity } from "./dialect.ts";
import type { SessionContext } from "./session.ts";
import { createPoolerError, Session } from "./session.ts";

/** After a connection was refused, no other is opened for this time: waiting claims poll meanwhile. */
const REFUSED_PAUSE_MS = 5_000;
/** Connections that are kept for the next waits. */
const MAX_IDLE = 2;
/**
 * How often two connections are asked for their sessions: with the server itself, and if something may be in between.
 */
const DIRECT_ROUNDS = 2;
const POOLER_ROUNDS = 10;

export interface ConnectionsOptions {
  readonly context: SessionContext;
  readonly connect: () => Promise<DedicatedConnection>;
  /** The most connections besides the shared one. */
  readonly maxWaitConnections: number;
  /** A session has ended, and its locks with it. */
  readonly onEnd: (session: Session) => void;
}

export class Connections {
  readonly #options: ConnectionsOptions;
  #shared: Session | null = null;
  #openingShared: Promise<Session> | null = null;
  /** Those for waiting: in use, and idle. */
  readonly #forWaiting = new Set<Session>();
  readonly #idle: Session[] = [];
  #openingCount = 0;
  #refusedUntil = Number.NEGATIVE_INFINITY;
  /** No pooler in transaction mode has been found. */
  #isTrusted = false;
  /** Of the sessions that end: close() awaits them. */
  readonly #endings = new Set<Promise<void>>();
  #isClosed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /**
   * Opens the shared connection.
   * @throws StoreRefusedError behind a pooler in transaction mode: statements of one connection reach different
   * sessions
   */
  async open(): Promise<void> {
    this.#shared = await this.#openChecked();
  }

  /** The shared session; a new one if it has ended. */
  shared(): Session | Promise<Session> {
    if (this.#shared !== null) return this.#shared;
    this.#openingShared ??= (this.#isTrusted ? this.#openSession() : this.#openChecked())
      .then((session) => {
        this.#shared = session;
        return session;
      })
      .finally(() => {
        this.#openingShared = null;
      });
    return this.#openingShared;
  }

  isShared(session: Session): boolean {
    return session === this.#shared;
  }

  /** A session to wait on, which give() returns. Null: there are too many, or the server has refused one just now. */
  take(): Promise<Session> | null {
    const idle = this.#idle.pop();
    if (idle !== undefined) return Promise.resolve(idle);
    const { context, maxWaitConnections } = this.#options;
    if (this.#forWaiting.size + this.#openingCount >= maxWaitConnections) return null;
    if (!this.#isTrusted || context.clock.now() < this.#refusedUntil) return null;
    this.#openingCount++;
    return this.#openSession()
      .then(
        (session) => {
          this.#forWaiting.add(session);
          return session;
        },
        (error: unknown) => {
          this.#refusedUntil = context.clock.now() + REFUSED_PAUSE_MS;
          throw error;
        },
      )
      .finally(() => this.#openingCount--);
  }

  /** It has no lock, and nothing waits on it. */
  give(session: Session): void {
    if (session.isEnded) return;
    if (this.#idle.length < MAX_IDLE) this.#idle.push(session);
    else void session.end();
  }

  /** Closes those that hold nothing; the shared one, too, if no claim is left. */
  closeIdle(withShared: boolean): void {
    for (const session of this.#idle.splice(0)) void session.end();
    if (withShared) void this.#shared?.end();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endAll();
    await Promise.all(this.#endings);
    // not before: a call that times out closes its connection, and a pooler would keep what its session has
    const { timeouts, waitTimeouts } = this.#options.context;
    timeouts.expireAll();
    waitTimeouts.expireAll();
  }

  #endAll(): void {
    for (const session of [...this.#forWaiting]) void session.end();
    void this.#shared?.end();
  }

  async #openSession(): Promise<Session> {
    return this.#toSession(await this.#connect());
  }

  /** @throws StoreRefusedError behind a pooler in transaction mode */
  async #openChecked(): Promise<Session> {
    const first = await this.#connect();
    try {
      const second = await this.#connect();
      try {
        // before any setting is changed: a pooler would pass it on to its other clients
        if (await this.#shareSessions([first, second])) throw createPoolerError(this.#options.context.dialect.name);
      } finally {
        second.release(true);
      }
      const session = await this.#toSession(first);
      this.#isTrusted = true;
      return session;
    } catch (error) {
      first.release(true);
      throw error;
    }
  }

  /**
   * Does each connection not have a session of its own? A pooler may give one to several for a while, so this may be
   * overlooked.
   */
  async #shareSessions(connections: readonly DedicatedConnection[]): Promise<boolean> {
    const { dialect, timeouts } = this.#options.context;
    const last = new Map<DedicatedConnection, SessionIdentity>();
    let rounds = POOLER_ROUNDS;
    for (let round = 0; round < rounds; round++) {
      for (const connection of connections) {
        const found = await timeouts.bound(dialect.identify(connection), "answer");
        const before = last.get(connection);
        if (before !== undefined && isUsedByOthers(before, found)) return true;
        last.set(connection, found);
      }
      const ids = Array.from(last.values(), ({ id }) => id);
      if (new Set(ids).size < ids.length) return true;
      if (connections.every(({ sessionId }, index) => sessionId === ids[index])) rounds = DIRECT_ROUNDS;
    }
    return false;
  }

  async #connect(): Promise<DedicatedConnection> {
    const { context, connect } = this.#options;
    try {
      return await connect();
    } catch (error) {
      throw context.dialect.explainError(error);
    }
  }

  async #toSession(connection: DedicatedConnection): Promise<Session> {
    const { context } = this.#options;
    const session = await Session.open(connection, context, (ended) => this.#onEnd(ended));
    if (this.#isClosed) void session.end();
    if (session.isEnded) throw new Error(`${context.dialect.name}: the connection has ended`);
    return session;
  }

  #onEnd(session: Session): void {
    if (session === this.#shared) this.#shared = null;
    this.#forWaiting.delete(session);
    const index = this.#idle.indexOf(session);
    if (index !== -1) this.#idle.splice(index, 1);
    const ending = session.end().finally(() => this.#endings.delete(ending));
    this.#endings.add(ending);
    this.#options.onEnd(session);
    if (!session.hasMetAnother) return;
    // the others are no more of their own than this one
    this.#isTrusted = false;
    this.#endAll();
  }
}

/** Between two statements of one connection. */
function isUsedByOthers(before: SessionIdentity, after: SessionIdentity): boolean {
  if (before.id !== after.id) return true;
  return before.transactionCount !== null && after.transactionCount !== before.transactionCount + 1n;
}
