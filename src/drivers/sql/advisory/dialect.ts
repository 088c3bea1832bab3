/**
 * What the advisory driver needs of a database: the one file to read before adding a dialect. The driver (driver.ts)
 * does what is the same for all: connections, queues of this process, losses. Each method runs on the connection that
 * it is given, in one round trip unless it says otherwise.
 */

import type { Check } from "../../../spi/driver.ts";
import type { SqlConnection, SqlValue } from "../clients/types.ts";

/** How long one statement waits for a lock. A longer wait is repeated, so that a broken connection is noticed. */
export const WAIT_MS = 60_000;

/** A lock of the server. */
export interface ServerLock {
  /** Locks with equal names may be the same lock of the server; locks with other names never are. */
  readonly name: string;
  /** The parameters of the server's functions. */
  readonly values: readonly SqlValue[];
}

/** How a lock is held. */
export interface AdvisoryMode {
  readonly lock: ServerLock;
  /** Together with other shared holders. Only if the dialect's permits are "shared". */
  readonly isShared: boolean;
}

/** A session of the server. */
export interface SessionIdentity {
  /** The server's number of it. */
  readonly id: string;
  /** How many transactions it has had, this one included, from any start. Null: the server does not count them. */
  readonly transactionCount: bigint | null;
}

/**
 * What shows that a statement runs in the session with our locks. A pooler that shares a session among its clients
 * gives each the same id, so the session also has a mark: a setting that one client writes, if no other has, and that
 * each statement compares.
 */
export interface SessionMark {
  /** The server's number of the session. */
  readonly id: string;
  /** Of one connection, and of no other. Base32. */
  readonly mark: string;
}

export interface AdvisoryDialect {
  /** The driver's name, which begins its messages. */
  readonly name: string;
  readonly permits: "shared" | "one";
  /** The option that maps keys to locks: for messages. */
  readonly lockOption: string;
  /** @throws StoreRefusedError if the user's function returns no lock */
  toLock(key: string): ServerLock;
  /** The session that runs this statement. @throws StoreRefusedError if this server's locks exclude no other client */
  identify(connection: SqlConnection): Promise<SessionIdentity>;
  /**
   * Marks a session, and prepares it: limits of the user's statements do not end its waits, and the server ends the
   * session if it is silent for `idleMs`, as far as the server can. A few round trips. Null, and nothing is changed: it
   * is another session, or has the mark of another client.
   */
  prepare(connection: SqlConnection, session: SessionMark, idleMs: number): Promise<true | null>;
  /**
   * Undoes prepare(), and unlocks everything, for the next client of a pooler. Null: the statement met another session.
   */
  restore(connection: SqlConnection, session: SessionMark): Promise<true | null>;
  /**
   * Ends another session of this user, unless other clients of a pooler use it. `ageMs`: it exists that long at least;
   * one with its number that is younger is not meant. Returns whether it is over. A few round trips.
   */
  endSession(connection: SqlConnection, id: string, ageMs: number): Promise<boolean>;
  /** Whether the statement meets the marked session. @throws StoreRefusedError as identify() */
  probe(connection: SqlConnection, session: SessionMark): Promise<true | null>;
  /**
   * Takes the lock if it is free. A lock that the session has is taken again. Null, as in all of these: nothing was
   * done, for it met another session.
   */
  tryLock(connection: SqlConnection, session: SessionMark, mode: AdvisoryMode): Promise<boolean | null>;
  /** Waits for the lock for at most WAIT_MS. */
  waitForLock(connection: SqlConnection, session: SessionMark, mode: AdvisoryMode): Promise<boolean | null>;
  /** Returns whether the session had the lock. */
  unlock(connection: SqlConnection, session: SessionMark, mode: AdvisoryMode): Promise<boolean | null>;
  /** The same for several. */
  unlockAll(
    connection: SqlConnection,
    session: SessionMark,
    modes: readonly AdvisoryMode[],
  ): Promise<readonly boolean[] | null>;
  /** Ends the wait of another session, if it waits for this lock. That session may have the lock by then. */
  cancelWait(connection: SqlConnection, sessionId: string, mode: AdvisoryMode): Promise<void>;
  diagnose(connection: SqlConnection): Promise<readonly Check[]>;
  /** Whether the server reported the error, so that the connection is in order. */
  isServerError(error: unknown): boolean;
  explainError(error: unknown): unknown;
}
