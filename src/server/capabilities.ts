/** What the server's own table can do, and what it refuses. */

import type { LockTable } from "../lock-table/table.ts";
import type { Claim, Driver, Traits } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { RequestError } from "./backend.ts";
import { MAX_UNJOURNALED_MS, needsJournal } from "./storage/write-ahead.ts";

const UNITS = [
  [86_400_000, "days"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
] as const;

/** A bound as people say it, and exactly: "30 days", "60 s", "1500 ms". */
export function formatExactDuration(ms: number): string {
  const unit = UNITS.find(([size]) => ms % size === 0 && ms >= 2 * size);
  return unit === undefined ? `${ms} ms` : `${ms / unit[0]} ${unit[1]}`;
}

/** local: what holds on a Unix socket. */
export function localTraits(sessionMs: number, isLocal: boolean): Traits {
  const lease = { claim: true, sessionMs, ...(isLocal && { silenceKeeps: true }) };
  return { lease, manyKeys: true, permits: "any", fencing: true, fifo: true, survives: "restart" };
}

/**
 * An open driver that may stand behind a server. On a Unix socket the end of our connection is our death, which would end
 * at once what our clients hold and believe in for a while yet.
 * @throws (rejects) Error, the driver being closed, if it may not
 */
export async function rejectUnixStore(driver: Driver): Promise<void> {
  if (driver.traits.lease.silenceKeeps !== true) return;
  await driver.close();
  throw new Error(
    "a lock server on a Unix socket cannot be the store of another one, with which its locks would end: let clients connect to it, or let it listen on TCP",
  );
}

/**
 * What another store cannot do it may not notice: of several keys it would take one, and say "held".
 * @throws RequestError naming what is missing
 */
export function checkSupported({ holds, ttlMs }: Claim, { lease, manyKeys, permits }: Traits): void {
  const unsupported = (problem: string): RequestError =>
    new RequestError("UNSUPPORTED", `the store behind this server ${problem}`);
  if (ttlMs !== "session" && !lease.claim) throw unsupported('knows only claims with ttl "session"');
  if (ttlMs === "session" && lease.sessionMs === undefined)
    throw unsupported("has no sessions: give a ttl in milliseconds");
  if (holds.length > 1 && !manyKeys) throw unsupported("takes one key at a time");
  for (const { permits: requested, limit } of holds) {
    const isExclusiveOrShared =
      limit === ALL_PERMITS && (requested === ALL_PERMITS || (requested === 1 && permits !== "one"));
    if (permits !== "any" && !isExclusiveOrShared)
      throw unsupported(permits === "one" ? "knows exclusive claims only" : "knows no semaphores");
  }
}

/** @throws RequestError if the table can never grant this claim as it is */
export function checkGrantable(claim: Claim, table: LockTable, micros: number, isDurable: boolean): void {
  if (claim.floor !== 0n && !table.tokenIssuer.acceptsFloor(claim.floor, micros)) {
    throw new RequestError("FLOOR", "the token floor is more than a day ahead of the server's clock");
  }
  if (!isDurable && needsJournal(claim.ttlMs)) {
    throw new RequestError(
      "UNSUPPORTED",
      `a server without a state grants no lease over ${formatExactDuration(MAX_UNJOURNALED_MS)}`,
    );
  }
}
