/** What the server supports, and checks that refuse claims it cannot handle. */

import type { LockTable } from "../lock-table/table.ts";
import type { Claim, Driver, Traits } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { RequestError } from "./request-error.ts";
import { MAX_UNJOURNALED_MS, needsJournal } from "./storage/write-ahead.ts";

const UNITS = [
  [86_400_000, "days"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
] as const;

/** A limit in a readable and exact form: "30 days", "60 s", "1500 ms". */
export function formatExactDuration(ms: number): string {
  const unit = UNITS.find(([size]) => ms % size === 0 && ms >= 2 * size);
  return unit === undefined ? `${ms} ms` : `${ms / unit[0]} ${unit[1]}`;
}

/** The guarantees of the lock table. isLocal: for clients on a Unix socket. */
export function localTraits(sessionMs: number, isLocal: boolean): Traits {
  const lease = { claim: true, sessionMs, ...(isLocal && { endsWithConnection: true }) };
  return { lease, manyKeys: true, permits: "any", fencing: true, fifo: true, durability: "restart", recall: "push" };
}

/**
 * Checks that an open driver may serve as the store of a server. On a Unix socket the end of our connection counts as
 * our death: it would end at once the claims that our clients still believe they hold.
 * @throws (rejects) Error if it may not; the driver is closed then
 */
export async function rejectUnixStore(driver: Driver, traits: Traits): Promise<void> {
  if (traits.lease.endsWithConnection !== true) return;
  await driver.close();
  throw new Error(
    "a server on a Unix socket cannot be the store of another server: its locks would end with that server. Connect clients to it directly, or make it listen on TCP",
  );
}

/**
 * Refuses what another store does not support. The store may not notice: of a claim on several keys it might take one
 * and answer "held".
 * @throws RequestError naming what is not supported
 */
export function checkSupported({ locks, ttlMs }: Claim, { lease, manyKeys, permits }: Traits): void {
  const unsupported = (problem: string): RequestError =>
    new RequestError("UNSUPPORTED", `the store behind this server ${problem}`);
  if (ttlMs !== "session" && !lease.claim) throw unsupported('supports only claims with ttl "session"');
  if (ttlMs === "session" && lease.sessionMs === undefined)
    throw unsupported("does not support sessions: pass a ttl in milliseconds");
  if (locks.length > 1 && !manyKeys) throw unsupported("supports only one key per claim");
  for (const { permits: requested, limit } of locks) {
    const isExclusiveOrShared =
      limit === ALL_PERMITS && (requested === ALL_PERMITS || (requested === 1 && permits !== "one"));
    if (permits !== "any" && !isExclusiveOrShared)
      throw unsupported(permits === "one" ? "supports exclusive claims only" : "does not support semaphores");
  }
}

/** @throws RequestError if the lock table can never grant this claim */
export function checkGrantable(claim: Claim, table: LockTable, micros: number, isDurable: boolean): void {
  if (claim.floor !== 0n && !table.tokenIssuer.acceptsFloor(claim.floor, micros)) {
    throw new RequestError("FLOOR", "the token floor is more than a day ahead of the server's clock");
  }
  if (!isDurable && needsJournal(claim.ttlMs)) {
    throw new RequestError(
      "UNSUPPORTED",
      `a server without a state directory grants no lease longer than ${formatExactDuration(MAX_UNJOURNALED_MS)}`,
    );
  }
}
