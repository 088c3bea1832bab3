/** A session of the server: a connection of the driver's own, and the claims that hold locks on it. */

import { StoreRefusedError } from "../../../errors.ts";
import type { Clock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { runInMicrotask } from "../../../util/microtask.ts";
import { rejectOnThrow, sleep } from "../../../util/timeout.ts";
import { CallTimeouts } from "../../call-timeouts.ts";
import type { DedicatedConnection, SqlConnection } from "../clients/types.ts";
import type { AdvisoryDialect, AdvisoryMode, SessionMark } from "./dialect.ts";
import { WAIT_MS } from "./dialect.ts";

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
 * Invariants: it counts as alive only if a statement that was sent within the last sessionMs has been answered, and the connection
 * has not ended. Once ended it stays so. Each statement that locks, unlocks or renews does so only in the session that open() has
 * marked; the first one that meets another session ends it.
 */
export class Session {
  readonly #mark: SessionMark;
  /** By this time the server has begun the session: a pooler begins one only when a client connection sends its first statement. */
  readonly #knownSince: number;
  readonly #onEnd: (session: Session) => void;
  /** The server ends the session with the connection: no pooler is in between. */
  readonly #isDirect: boolean;
  readonly #connection: DedicatedConnection;
  readonly #context: SessionContext;
  /** When the last statement was sent that has been answered. The server counts from its end, which is later. */
  #confirmedAt: number;
  #isEnded = false;
  #hasMetAnother = false;
  /** Settles when the connection is closed, and the session does not have the locks any more. Never rejects. */
  #ending: Promise<void> = Promise.resolve();
  #probe: Promise<void> | null = null;
  /** A statement is in progress. The others wait for its end: pg is to refuse more than one at a time. */
  #isBusy = false;
  readonly #waitingStatements: (() => void)[] = [];

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
    this.#confirmedAt = sentAt;
    this.#onEnd = onEnd;
    this.#isDirect = connection.sessionId === mark.id;
    if (this.#isDirect) connection.prepareStatements?.();
    connection.onEnd(() => this.#setEnded());
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
    return this.#isEnded;
  }

  /** Did a statement meet another session? */
  get hasMetAnother(): boolean {
    return this.#hasMetAnother;
  }

  /** How long the server keeps the session from now on, if it hears nothing; 0: it may have ended it. */
  get remainingMs(): number {
    const { clock, sessionMs } = this.#context;
    return this.#isEnded ? 0 : Math.max(this.#confirmedAt + sessionMs - clock.now(), 0);
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
    if (this.#isEnded) return this.#ending;
    if (this.#isDirect) this.#connection.release(true);
    else this.#endShared();
    return this.#ending;
  }

  /**
   * The pooler keeps the session, and gives it to other clients: it must not keep the locks, nor the settings. After the statement in
   * progress, which may have taken a lock; one that waits for longer than END_MS is closed by the pooler with its session.
   */
  #endShared(): void {
    const { clock } = this.#context;
    const giveUpAt = clock.now() + END_MS;
    const cleanUp = async (): Promise<void> => {
      while (!(await this.#tryEndShared()) && clock.now() < giveUpAt) await sleep(clock, END_RETRY_MS);
    };
    const timeout = clock.timer(() => this.#connection.release(true));
    timeout.set(giveUpAt);
    timeout.keepAlive(true);
    this.#ending = this.#afterStatements()
      .then(cleanUp)
      .catch(() => undefined)
      .then(() => {
        timeout.stop();
        this.#connection.release(true);
      });
    this.#setEnded();
  }

  /** Of an ended session: none of those that wait is sent any more. */
  #afterStatements(): Promise<void> {
    if (!this.#isBusy) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waitingStatements.push(() => {
        resolve();
        this.#endStatement();
      });
    });
  }

  async #tryEndShared(): Promise<boolean> {
    const { dialect, clock } = this.#context;
    if ((await dialect.restore(this.#connection, this.#mark)) === true) return true;
    return dialect.endSession(this.#connection, this.id, clock.now() - this.#knownSince);
  }

  /** Tells its holders. */
  #setEnded(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#onEnd(this);
  }

  /** Its answer confirms that the session existed when it was sent. */
  #call<T>(work: (connection: SqlConnection) => Promise<T | null>): Promise<T> {
    return this.#run(this.#context.timeouts, true, work);
  }

  /** Runs it when all earlier statements have ended. Without an answer the state of the connection is unknown, so it is closed. */
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
          if (!this.#isEnded && !dialect.isServerError(error)) this.#connection.release(true);
          reject(dialect.explainError(error));
        }
        this.#endStatement();
      };
      const send = (): void => {
        if (this.#isEnded) return fail(new Error(`${dialect.name}: the connection has ended`));
        rejectOnThrow(() => work(this.#connection)).then((result) => {
          if (result === null) {
            this.#hasMetAnother = true;
            this.#endShared();
            return fail(createPoolerError(dialect.name));
          }
          if (stopTimeout()) {
            if (confirms) this.#confirmedAt = Math.max(this.#confirmedAt, sentAt);
            resolve(result);
          }
          this.#endStatement();
        }, fail);
      };
      if (this.#isBusy) this.#waitingStatements.push(send);
      else {
        this.#isBusy = true;
        send();
      }
    });
  }

  #endStatement(): void {
    const next = this.#waitingStatements.shift();
    if (next === undefined) this.#isBusy = false;
    else runInMicrotask(next);
  }
}

/** Why locks of this connection would exclude nobody. */
export function createPoolerError(driverName: string): StoreRefusedError {
  return new StoreRefusedError(
    `${driverName}: a pooler in transaction mode is in between, which gives the session with its locks to other clients: connect to the server itself, or through a pooler in session mode`,
  );
}
