/** Opens a database, and waits while it cannot be reached. */

import { isFatalError } from "../../errors.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock } from "../../util/clock.ts";
import { keepProcessAlive, sleep, withTimeout } from "../../util/timeout.ts";

/** The longest delay before the next attempt. */
const MAX_DELAY_MS = 500;

/** A database that is not open yet. */
interface Openable<S, T> {
  /** The driver's name, which begins its error messages. */
  readonly name: string;
  /** @throws StoreRefusedError if a retry cannot succeed */
  open(): Promise<S>;
  /** Reads what open() needs to know. It is part of the attempt: the connection may break before. */
  inspect(session: S): Promise<T>;
}

/** An open database, and what was read from it. */
interface OpenedDatabase<S, T> {
  readonly session: S;
  readonly found: T;
}

interface Closable {
  close(): Promise<void>;
}

/**
 * Opens the database; repeats attempts that failed until `timeoutMs` have passed.
 * @throws StoreRefusedError if a retry cannot succeed; Error if the database was not reached in time
 */
export async function openDatabase<S extends Closable, T>(
  database: Openable<S, T>,
  clock: Clock,
  timeoutMs: number,
): Promise<OpenedDatabase<S, T>> {
  // neither a pool nor a back-off does
  return keepProcessAlive(clock, () => openUntil(database, clock, timeoutMs));
}

async function openUntil<S extends Closable, T>(
  database: Openable<S, T>,
  clock: Clock,
  timeoutMs: number,
): Promise<OpenedDatabase<S, T>> {
  const deadline = clock.now() + timeoutMs;
  let lastFailure: unknown;
  for (let failures = 1; ; failures++) {
    try {
      return await openWithin(database, clock, deadline - clock.now());
    } catch (error) {
      if (isPermanent(error)) throw error;
      // an attempt that the end of the time has cut says less than a complete one
      if (error instanceof NoAnswerError && lastFailure !== undefined)
        throw toUnreachedError(database.name, timeoutMs, lastFailure);
      lastFailure = error;
      const remainingMs = deadline - clock.now();
      if (remainingMs < 1) throw toUnreachedError(database.name, timeoutMs, error);
      // ever shorter towards the end: a database that comes up shortly before is still reached
      await sleep(clock, Math.min(backoffMs(failures, Math.random(), MAX_DELAY_MS), remainingMs / 2));
    }
  }
}

class NoAnswerError extends Error {
  constructor() {
    super(
      "no answer: is the database starting, blocked by a firewall, behind a pooler that has no second connection for this process, or one of Holdfast's tables locked by another session?",
    );
  }
}

/** One attempt. A session that opens too late is closed. */
function openWithin<S extends Closable, T>(
  database: Openable<S, T>,
  clock: Clock,
  timeoutMs: number,
): Promise<OpenedDatabase<S, T>> {
  const opening = openAndInspect(database);
  return withTimeout(clock, timeoutMs, opening, () => {
    opening.then(
      ({ session }) => session.close(),
      () => undefined,
    );
    return Promise.reject(new NoAnswerError());
  });
}

async function openAndInspect<S extends Closable, T>(database: Openable<S, T>): Promise<OpenedDatabase<S, T>> {
  const session = await database.open();
  try {
    return { session, found: await database.inspect(session) };
  } catch (error) {
    await session.close();
    throw error;
  }
}

/** A retry cannot change what the caller passed, or what the database refuses. */
function isPermanent(error: unknown): boolean {
  return isFatalError(error) || error instanceof TypeError;
}

function toUnreachedError(driverName: string, timeoutMs: number, cause: unknown): Error {
  const message = (cause instanceof Error ? cause.message : String(cause)).replace(`${driverName}: `, "");
  return new Error(`${driverName}: not reached within ${timeoutMs} ms: ${message}`, { cause });
}
