/** What the lock table of a server guarantees, and the refusal of claims that it can never grant. */

import type { LockTable } from "../../lock-table/table.ts";
import type { Claim, Traits } from "../../spi/driver.ts";
import { formatExactDuration } from "../limits.ts";
import { RequestError } from "../request-error.ts";
import { MAX_UNJOURNALED_MS, needsJournal } from "../storage/write-ahead.ts";

/** The guarantees of the lock table. isLocal: for clients on a Unix socket. */
export function localTraits(sessionMs: number, isLocal: boolean): Traits {
  const lease = { claim: true, sessionMs, ...(isLocal && { endsWithConnection: true }) };
  return { lease, manyKeys: true, permits: "any", fencing: true, fifo: true, durability: "restart", recall: "push" };
}

/** @throws RequestError if the lock table can never grant this claim */
export function checkGrantable(claim: Claim, table: LockTable, micros: number, isDurable: boolean): void {
  if (!table.acceptsFloor(claim, claim.floor, micros)) {
    throw new RequestError("FLOOR", "the token floor is more than a day ahead of the server's clock");
  }
  if (!isDurable && needsJournal(claim.ttlMs)) {
    throw new RequestError(
      "UNSUPPORTED",
      `a server without a state directory grants no lease longer than ${formatExactDuration(MAX_UNJOURNALED_MS)}`,
    );
  }
}
