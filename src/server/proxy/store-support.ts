/** Which store may be behind a server, and the refusal of what it does not support. */

import type { Claim, Driver, Traits } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { RequestError } from "../request-error.ts";

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
