/** A session of the server: a connection of the driver's own, and the claims that hold locks on it. */

import type { Clock } from "../../../util/clock.ts";
import { runInMicrotask } from "../../../util/microtask.ts";
import { rejectOnThrow } from "../../../util/timeout.ts";
import { CallTimeouts } from "../../call-timeouts.ts";
import type { DedicatedConnection, SqlConnection } from "../clients/types.ts";
import type { AdvisoryDialect, LockMode } from "./dialect.ts";
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

/**
 * Invariant: it counts as alive only if a statement that was sent within the last sessionMs has been answered, the connection
 * has not ended, and each renewal found the same session of the server. Once ended it stays so.
 */
export class Session {
  /** The server's id of it. */
  readonly id: string;
  readonly #connection: DedicatedConnection;
  readonly #context: SessionContext;
  /** When the last statement was sent that has been answered. The server counts from its end, which is later. */
  #confirmedAt: number;
  #isEnded = false;
  #probe: Promise<void> | null = null;
  /** A statement is in progress. The others wait for its end: pg is to refuse more than one at a time. */
  #isBusy = false;
  readonly #waitingStatements: (() => void)[] = [];

  private constructor(id: string, connection: DedicatedConnection, context: SessionContext, confirmedAt: number) {
    this.id = id;
    this.#connection = connection;
    this.#context = context;
    this.#confirmedAt = confirmedAt;
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
      const id = await timeouts.bound(dialect.identify(connection), "answer");
      const session = new Session(id, connection, context, sentAt);
      connection.onEnd(() => {
        session.#isEnded = true;
        onEnd(session);
      });
      await session.#call(() => dialect.prepare(connection, sessionMs));
      return session;
    } catch (error) {
      connection.release(true);
      throw dialect.explainError(error);
    }
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** How long the server keeps the session from now on, if it hears nothing; 0: it may have ended it. */
  get remainingMs(): number {
    const { clock, sessionMs } = this.#context;
    return this.#isEnded ? 0 : Math.max(this.#confirmedAt + sessionMs - clock.now(), 0);
  }

  tryLock(mode: LockMode): Promise<boolean> {
    return this.#call((connection) => this.#context.dialect.tryLock(connection, mode));
  }

  unlock(mode: LockMode): Promise<boolean> {
    return this.#call((connection) => this.#context.dialect.unlock(connection, mode));
  }

  unlockAll(modes: readonly LockMode[]): Promise<readonly boolean[]> {
    return this.#call((connection) => this.#context.dialect.unlockAll(connection, modes));
  }

  cancelWait(sessionId: string, mode: LockMode): Promise<void> {
    return this.#call((connection) => this.#context.dialect.cancelWait(connection, sessionId, mode));
  }

  /** No other statement may be sent meanwhile. Its answer may have been on its way for long, so it confirms nothing. */
  waitForLock(mode: LockMode): Promise<boolean> {
    const { dialect, waitTimeouts } = this.#context;
    return this.#run(waitTimeouts, false, (connection) => dialect.waitForLock(connection, mode));
  }

  /** Asks the server whether the session exists. Those who ask at the same time share one statement. */
  probe(): Promise<void> {
    this.#probe ??= this.#call((connection) => this.#context.dialect.identify(connection))
      .then((id) => {
        // a pooler gave the connection to another session, which has none of the locks
        if (id !== this.id) this.end();
      })
      .finally(() => {
        this.#probe = null;
      });
    return this.#probe;
  }

  /** For the diagnosis. */
  query<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    return this.#call(work);
  }

  /** Closes the connection. The server frees its locks. */
  end(): void {
    this.#connection.release(true);
  }

  /** Its answer confirms that the session existed when it was sent. */
  #call<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    return this.#run(this.#context.timeouts, true, work);
  }

  /** Runs it when all earlier statements have ended. Without an answer the state of the connection is unknown, so it is closed. */
  #run<T>(timeouts: CallTimeouts, confirms: boolean, work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    const { dialect, clock } = this.#context;
    const sentAt = clock.now();
    // one promise: each further one costs a short statement a good part of its time
    return new Promise((resolve, reject) => {
      const stopTimeout = timeouts.start(() => {
        this.end();
        reject(new Error(`${dialect.name}: no answer within ${timeouts.timeoutMs} ms: the connection was closed`));
      }, sentAt);
      const fail = (error: unknown): void => {
        if (stopTimeout()) {
          if (!dialect.isServerError(error)) this.end();
          reject(dialect.explainError(error));
        }
        this.#endStatement();
      };
      const send = (): void => {
        if (this.#isEnded) return fail(new Error(`${dialect.name}: the connection has ended`));
        rejectOnThrow(() => work(this.#connection)).then((result) => {
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
