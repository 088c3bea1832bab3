/** A session of the server: a connection of the driver's own, and the claims that hold locks on it. */

import { StoreRefusedError } from "../../../errors.ts";
import type { Clock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { rejectOnThrow, sleep } from "../../../util/timeout.ts";
import { CallTimeouts } from "../../call-timeouts.ts";
import type { DedicatedConnection, SqlConnection } from "../clients/types.ts";
import type { AdvisoryDialect, AdvisoryMode, SessionMark } from "./dialect.ts";
import { WAIT_MS } from "./dialect.ts";
import { StatementQueue } from "./statement-queue.ts";

/** What the sessions of one driver share. */
export interface SessionContext {
  readonly dialect: AdvisoryDialect;
  readonly clock: Clock;
  /** How long a session lasts without an answer, in milliseconds. */
  readonly sessionMs: number;
  readonly timeouts: CallTimeouts;
  readonly waitTimeouts: CallTimeouts;
}

export function createSessionContext(dialect: AdvisoryDialect, clock: Clock, sessionMs: number): SessionContext {
  return {
    dialect,
    clock,
    sessionMs,
    timeouts: new CallTimeouts(clock, sessionMs, dialect.name),
    waitTimeouts: new CallTimeouts(clock, WAIT_MS + sessionMs, dialect.name),
  };
}

/** How long a session that a pooler shares with its other clients may take to end. */
const END_MS = 5_000;
/** Between two attempts to end it. */
const END_RETRY_MS = 5;

/**
 * alive   `confirmedAt`: when the last statement was sent that has been answered. The server counts from its end, which
 *         is later. Without one within the last sessionMs the server may have ended the session.
 * ended   The connection has ended, or is being ended: no further statement is sent. It stays so. `ending` settles when
 *         the connection is closed, and the session does not have the locks any more; it never rejects.
 *         `hasMetAnother`: a statement met another session.
 */
type SessionState =
  | { readonly at: "alive"; confirmedAt: number }
  | { readonly at: "ended"; readonly ending: Promise<void>; readonly hasMetAnother: boolean };

/**
 * A session of the server on a connection of its own. Each statement that locks, unlocks or renews does so only in the
 * session that open() has marked; the first one that meets another session ends it.
 */
export class Session {
  readonly #mark: SessionMark;
  /**
   * By this time the server has begun the session: a pooler begins one only when a client connection sends its first
   * statement.
   */
  readonly #knownSince: number;
  readonly #onEnd: (session: Session) => void;
  /** The server ends the session with the connection: no pooler is in between. */
  readonly #isDirect: boolean;
  readonly #connection: DedicatedConnection;
  readonly #context: SessionContext;
  readonly #statements = new StatementQueue();
  #state: SessionState;
  #probe: Promise<void> | null = null;

  private constructor(
    mark: SessionMark,
    connection: DedicatedConnection,
    context: SessionContext,
    sentAt: number,
    onEnd: (session: Session) => void,
  ) {
    this.#mark = mark;
    this.#connection = connection;
    this.#context = context;
    this.#knownSince = context.clock.now();
    this.#state = { at: "alive", confirmedAt: sentAt };
    this.#onEnd = onEnd;
    this.#isDirect = connection.sessionId === mark.id;
    if (this.#isDirect) connection.prepareStatements?.();
    connection.onEnd(() => this.#setEnded(Promise.resolve()));
  }

  /** @param onEnd called once, when the session has ended for whatever reason */
  static async open(
    connection: DedicatedConnection,
    context: SessionContext,
    onEnd: (session: Session) => void,
  ): Promise<Session> {
    const { dialect, clock, sessionMs, timeouts } = context;
    const sentAt = clock.now();
    try {
      const { id } = await timeouts.bound(dialect.identify(connection), "answer");
      const session = new Session({ id, mark: randomId() }, connection, context, sentAt, onEnd);
      const isPrepared = await timeouts.bound(dialect.prepare(connection, session.#mark, sessionMs), "answer");
      if (isPrepared === null) throw createPoolerError(dialect.name);
      return session;
    } catch (error) {
      connection.release(true);
      throw dialect.explainError(error);
    }
  }

  /** The server's id of it. */
  get id(): string {
    return this.#mark.id;
  }

  get isEnded(): boolean {
    return this.#state.at === "ended";
  }

  /** Did a statement meet another session? */
  get hasMetAnother(): boolean {
    return this.#state.at === "ended" && this.#state.hasMetAnother;
  }

  /** How long the server keeps the session from now on, if it hears nothing; 0: it may have ended it. */
  get remainingMs(): number {
    const { clock, sessionMs } = this.#context;
    return this.#state.at === "ended" ? 0 : Math.max(this.#state.confirmedAt + sessionMs - clock.now(), 0);
  }

  tryLock(mode: AdvisoryMode): Promise<boolean> {
    return this.#call((connection) => this.#context.dialect.tryLock(connection, this.#mark, mode));
  }

  unlock(mode: AdvisoryMode): Promise<boolean> {
    return this.#call((connection) => this.#context.dialect.unlock(connection, this.#mark, mode));
  }

  unlockAll(modes: readonly AdvisoryMode[]): Promise<readonly boolean[]> {
    return this.#call((connection) => this.#context.dialect.unlockAll(connection, this.#mark, modes));
  }

  cancelWait(sessionId: string, mode: AdvisoryMode): Promise<void> {
    return this.#call((connection) => this.#context.dialect.cancelWait(connection, sessionId, mode));
  }

  /** No other statement may be sent meanwhile. Its answer may have been on its way for long, so it confirms nothing. */
  waitForLock(mode: AdvisoryMode): Promise<boolean> {
    const { dialect, waitTimeouts } = this.#context;
    return this.#run(waitTimeouts, false, (connection) => dialect.waitForLock(connection, this.#mark, mode));
  }

  /** Asks the server whether the session exists. Those who ask at the same time share one statement. */
  probe(): Promise<void> {
    this.#probe ??= this.#call((connection) => this.#context.dialect.probe(connection, this.#mark))
      .then(() => undefined)
      .finally(() => {
        this.#probe = null;
      });
    return this.#probe;
  }

  /** For the diagnosis. */
  query<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    return this.#call(work);
  }

  /** Closes the connection. The server frees its locks. Settles when that is done; never rejects. */
  end(): Promise<void> {
    if (this.#state.at === "ended") return this.#state.ending;
    if (!this.#isDirect) return this.#endShared(false);
    this.#connection.release(true);
    return Promise.resolve();
  }

  /**
   * The pooler keeps the session, and gives it to other clients: it must not keep the locks, nor the settings. After
   * the statement in progress, which may have taken a lock; one that waits for longer than END_MS is closed by the
   * pooler with its session.
   */
  #endShared(hasMetAnother: boolean): Promise<void> {
    const { clock } = this.#context;
    const giveUpAt = clock.now() + END_MS;
    const cleanUp = async (): Promise<void> => {
      while (!(await this.#tryEndShared()) && clock.now() < giveUpAt) await sleep(clock, END_RETRY_MS);
    };
    const timeout = clock.timer(() => this.#connection.release(true));
    timeout.set(giveUpAt);
    timeout.keepAlive(true);
    const ending = this.#statements
      .whenIdle()
      .then(cleanUp)
      .catch(() => undefined)
      .then(() => {
        timeout.stop();
        this.#connection.release(true);
      });
    this.#setEnded(ending, hasMetAnother);
    return ending;
  }

  async #tryEndShared(): Promise<boolean> {
    const { dialect, clock } = this.#context;
    if ((await dialect.restore(this.#connection, this.#mark)) === true) return true;
    return dialect.endSession(this.#connection, this.id, clock.now() - this.#knownSince);
  }

  #setEnded(ending: Promise<void>, hasMetAnother = false): void {
    const wasAlive = this.#state.at === "alive";
    if (wasAlive || hasMetAnother) this.#state = { at: "ended", ending, hasMetAnother };
    if (wasAlive) this.#onEnd(this);
  }

  /** Its answer confirms that the session existed when it was sent. */
  #call<T>(work: (connection: SqlConnection) => Promise<T | null>): Promise<T> {
    return this.#run(this.#context.timeouts, true, work);
  }

  /**
   * Runs it when all earlier statements have ended. Without an answer the state of the connection is unknown, so it is
   * closed.
   */
  #run<T>(
    timeouts: CallTimeouts,
    confirms: boolean,
    work: (connection: SqlConnection) => Promise<T | null>,
  ): Promise<T> {
    const { dialect, clock } = this.#context;
    const sentAt = clock.now();
    // one promise: each further one costs a short statement a good part of its time
    return new Promise((resolve, reject) => {
      const stopTimeout = timeouts.start(() => {
        this.#connection.release(true);
        reject(new Error(`${dialect.name}: no answer within ${timeouts.timeoutMs} ms: the connection was closed`));
      }, sentAt);
      const fail = (error: unknown): void => {
        if (stopTimeout()) {
          if (!this.isEnded && !dialect.isServerError(error)) this.#connection.release(true);
          reject(dialect.explainError(error));
        }
        this.#statements.next();
      };
      const send = (): void => {
        if (this.isEnded) return fail(new Error(`${dialect.name}: the connection has ended`));
        rejectOnThrow(() => work(this.#connection)).then((result) => {
          if (result === null) {
            void this.#endShared(true);
            return fail(createPoolerError(dialect.name));
          }
          if (stopTimeout()) {
            if (confirms) this.#confirm(sentAt);
            resolve(result);
          }
          this.#statements.next();
        }, fail);
      };
      this.#statements.add(send);
    });
  }

  /** It existed when this statement was sent. */
  #confirm(sentAt: number): void {
    if (this.#state.at === "alive") this.#state.confirmedAt = Math.max(this.#state.confirmedAt, sentAt);
  }
}

/** Why locks of this connection would exclude nobody. */
export function createPoolerError(driverName: string): StoreRefusedError {
  return new StoreRefusedError(
    `${driverName}: a pooler in transaction mode is in between, which gives the session with its locks to other clients: connect to the server itself, or through a pooler in session mode`,
  );
}
