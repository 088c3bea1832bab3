/**
 * What the advisory driver needs of a database: the one file to read before adding a dialect. The driver (driver.ts) does what is the
 * same for all: connections, queues of this process, losses. Each method runs on the connection that it is given, in one
 * round trip unless it says otherwise.
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
export interface LockMode {
  readonly lock: ServerLock;
  /** Together with other shared holders. Only if the dialect's permits are "shared". */
  readonly isShared: boolean;
}

export interface AdvisoryDialect {
  /** The driver's name, which begins its messages. */
  readonly name: string;
  readonly permits: "shared" | "one";
  /** The option that maps keys to locks: for messages. */
  readonly lockOption: string;
  /** @throws FatalDriverError if the user's function returns no lock */
  toLock(key: string): ServerLock;
  /** The server's id of the connection's session. @throws FatalDriverError if this server's locks exclude nobody */
  identify(connection: SqlConnection): Promise<string>;
  /**
   * Prepares a new session: limits of the user's statements do not end its waits, and the server ends the session if it is
   * silent for `idleMs`, as far as the server can. A few round trips.
   */
  prepare(connection: SqlConnection, idleMs: number): Promise<void>;
  /** Takes the lock if it is free. A lock that the session has is taken again. */
  tryLock(connection: SqlConnection, mode: LockMode): Promise<boolean>;
  /** Waits for the lock for at most WAIT_MS. */
  waitForLock(connection: SqlConnection, mode: LockMode): Promise<boolean>;
  /** Returns whether the session had the lock. */
  unlock(connection: SqlConnection, mode: LockMode): Promise<boolean>;
  /** The same for several. */
  unlockAll(connection: SqlConnection, modes: readonly LockMode[]): Promise<readonly boolean[]>;
  /** Ends the wait of another session, if it waits for this lock. That session may have the lock by then. */
  cancelWait(connection: SqlConnection, sessionId: string, mode: LockMode): Promise<void>;
  diagnose(connection: SqlConnection): Promise<readonly Check[]>;
  /** Whether the server reported the error, so that the connection is in order. */
  isServerError(error: unknown): boolean;
  explainError(error: unknown): unknown;
}
