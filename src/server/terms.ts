/** What the server's own table can do, and what it refuses. */

import type { Table } from "../core/table.ts";
import type { Claim, Driver, Traits } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { Refusal } from "./backend.ts";
import { isLong, SHORT_MS } from "./durability.ts";

const UNITS = [
  [86_400_000, "days"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
] as const;

/** A bound as people say it, and exactly: "30 days", "60 s", "1500 ms". */
export function boundText(ms: number): string {
  const unit = UNITS.find(([size]) => ms % size === 0 && ms >= 2 * size);
  return unit === undefined ? `${ms} ms` : `${ms / unit[0]} ${unit[1]}`;
}

/** local: what holds on a Unix socket. */
export function traitsOf(sessionMs: number, local: boolean): Traits {
  const lease = { claim: true, sessionMs, ...(local && { silenceKeeps: true }) };
  return { lease, manyKeys: true, permits: "any", fencing: true, fifo: true, survives: "restart" };
}

/**
 * An open driver that may stand behind a server. On a Unix socket the end of our connection is our death, which would end
 * at once what our clients hold and believe in for a while yet.
 * @throws (rejects) Error, the driver being closed, if it may not
 */
export async function checkStore(driver: Driver): Promise<void> {
  if (driver.traits.lease.silenceKeeps !== true) return;
  await driver.close();
  throw new Error(
    "a lock server on a Unix socket cannot be the store of another one, with which its locks would end: let clients connect to it, or let it listen on TCP",
  );
}

/**
 * What another store cannot do it may not notice: of several keys it would take one, and say "held".
 * @throws Refusal naming what is missing
 */
export function checkTraits({ holds, ttlMs }: Claim, { lease, manyKeys, permits }: Traits): void {
  const missing = (what: string): Refusal => new Refusal("UNSUPPORTED", `the store behind this server ${what}`);
  if (ttlMs !== "session" && !lease.claim) throw missing('knows only claims with ttl "session"');
  if (ttlMs === "session" && lease.sessionMs === undefined)
    throw missing("has no sessions: give a ttl in milliseconds");
  if (holds.length > 1 && !manyKeys) throw missing("takes one key at a time");
  for (const { permits: wanted, limit } of holds) {
    const isPlain = limit === ALL_PERMITS && (wanted === ALL_PERMITS || (wanted === 1 && permits !== "one"));
    if (permits !== "any" && !isPlain)
      throw missing(permits === "one" ? "knows exclusive claims only" : "knows no semaphores");
  }
}

/** @throws Refusal if the table can never grant this claim as it is */
export function checkTerms(claim: Claim, table: Table, micros: number, isDurable: boolean): void {
  if (claim.floor !== 0n && !table.mint.reaches(claim.floor, micros)) {
    throw new Refusal("FLOOR", "the token floor is more than a day ahead of the server's clock");
  }
  if (!isDurable && isLong(claim.ttlMs)) {
    throw new Refusal("UNSUPPORTED", `a server without a state grants no lease over ${boundText(SHORT_MS)}`);
  }
}
