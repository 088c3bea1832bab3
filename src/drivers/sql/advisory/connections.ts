/**
 * The connections of one driver, beside the user's pool: one shared by all locks that were free when they were asked for, and one for
 * each lock that had to be waited for, until it is released.
 */

import { FatalDriverError } from "../../../errors.ts";
import type { DedicatedConnection } from "../clients/types.ts";
import type { SessionContext } from "./session.ts";
import { Session } from "./session.ts";

/** After a connection was refused, no other is opened for this time: waiting claims poll meanwhile. */
const REFUSED_PAUSE_MS = 5_000;
/** Connections that are kept for the next waits. */
const MAX_IDLE = 2;

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
  #isClosed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /**
   * Opens the shared connection.
   * @throws FatalDriverError behind a pooler in transaction mode: statements of one connection reach different sessions
   */
  async open(): Promise<void> {
    const { context, connect } = this.#options;
    const { dialect, timeouts } = context;
    const first = await connect();
    try {
      const second = await connect();
      try {
        const ids: string[] = [];
        // before any setting is changed: a pooler would pass it on to its other clients
        for (const connection of [first, second, first, second])
          ids.push(await timeouts.bound(dialect.identify(connection), "answer"));
        if (ids[0] === ids[1] || ids[0] !== ids[2] || ids[1] !== ids[3]) {
          throw new FatalDriverError(
            `${dialect.name}: a pooler in transaction mode is in between, which gives the session with its locks to other clients: connect to the server itself, or through a pooler in session mode`,
          );
        }
      } finally {
        second.release(true);
      }
      this.#shared = await this.#toSession(first);
    } catch (error) {
      first.release(true);
      throw error;
    }
  }

  /** The shared session; a new one if it has ended. */
  shared(): Session | Promise<Session> {
    if (this.#shared !== null) return this.#shared;
    this.#openingShared ??= this.#openSession()
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
    if (context.clock.now() < this.#refusedUntil) return null;
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
    else session.end();
  }

  /** Closes those that hold nothing; the shared one, too, if no claim is left. */
  closeIdle(withShared: boolean): void {
    for (const session of this.#idle.splice(0)) session.end();
    if (withShared) this.#shared?.end();
  }

  close(): void {
    this.#isClosed = true;
    for (const session of [...this.#forWaiting]) session.end();
    this.#shared?.end();
  }

  async #openSession(): Promise<Session> {
    const { context, connect } = this.#options;
    return this.#toSession(
      await connect().catch((error: unknown) => {
        throw context.dialect.explainError(error);
      }),
    );
  }

  async #toSession(connection: DedicatedConnection): Promise<Session> {
    const { context } = this.#options;
    const session = await Session.open(connection, context, (ended) => this.#onEnd(ended));
    if (this.#isClosed) session.end();
    if (session.isEnded) throw new Error(`${context.dialect.name}: the connection has ended`);
    return session;
  }

  #onEnd(session: Session): void {
    if (session === this.#shared) this.#shared = null;
    this.#forWaiting.delete(session);
    const index = this.#idle.indexOf(session);
    if (index !== -1) this.#idle.splice(index, 1);
    this.#options.onEnd(session);
  }
}
