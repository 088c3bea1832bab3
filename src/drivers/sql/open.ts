/** Opens a database, and waits while it cannot be reached. */

import { isFatalError } from "../../errors.ts";
import type { Check } from "../../spi/driver.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock } from "../../util/clock.ts";
import { sleep, withTimeout } from "../../util/timeout.ts";
import type { Dialect, DialectEvents, DialectSession } from "./dialect.ts";

/** The longest delay before the next attempt. */
const MAX_DELAY_MS = 500;

/** An open database, and what its diagnosis said. */
export interface OpenedDialect {
  readonly session: DialectSession;
  readonly checks: readonly Check[];
  /** What is left of a grace period after a loss of data; 0: none is running, or guardDataLoss is off. */
  readonly graceMs: number;
}

/**
 * Opens the database; repeats attempts that failed until `timeoutMs` have passed.
 * @throws FatalDriverError if a retry cannot succeed; Error if the database was not reached in time
 */
export async function openDialect(
  dialect: Dialect,
  events: DialectEvents,
  clock: Clock,
  timeoutMs: number,
  isGuarded: boolean,
): Promise<OpenedDialect> {
  const deadline = clock.now() + timeoutMs;
  // neither a pool nor a back-off keeps the process alive
  const keepAlive = clock.timer(() => undefined);
  keepAlive.set(deadline);
  keepAlive.keepAlive(true);
  try {
    for (let failures = 1; ; failures++) {
      try {
        return await openWithin(dialect, events, clock, deadline - clock.now(), isGuarded);
      } catch (error) {
        if (isPermanent(error)) throw error;
        const delayMs = backoffMs(failures, Math.random(), MAX_DELAY_MS);
        if (clock.now() + delayMs >= deadline) throw toUnreachedError(dialect.name, timeoutMs, error);
        await sleep(clock, delayMs);
      }
    }
  } finally {
    keepAlive.stop();
  }
}

/** One attempt. A session that opens too late is closed. */
function openWithin(
  dialect: Dialect,
  events: DialectEvents,
  clock: Clock,
  timeoutMs: number,
  isGuarded: boolean,
): Promise<OpenedDialect> {
  const opening = openAndDiagnose(dialect, events, isGuarded);
  return withTimeout(clock, timeoutMs, opening, () => {
    opening.then(
      ({ session }) => session.close(),
      () => undefined,
    );
    return Promise.reject(new Error("no answer: is the database starting, or blocked by a firewall?"));
  });
}

/** The diagnosis is part of the attempt: the connection may break between them. */
async function openAndDiagnose(dialect: Dialect, events: DialectEvents, isGuarded: boolean): Promise<OpenedDialect> {
  const session = await dialect.open(events);
  try {
    const graceMs = isGuarded ? await session.checkDataLoss() : 0;
    return { session, checks: await session.diagnose(), graceMs };
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
