/**
 * What one process has seen of the entries of one document, by its own monotonic clock: since when each is unchanged. The rule of
 * the DynamoDB lock client: an entry whose renewal was not seen to change for its lease is over. No two clocks are compared.
 */

import type { ClaimId } from "../../spi/driver.ts";
import type { Entry, LockDocument, Tombstone } from "./format.ts";

/** Clock rates may differ by 1 %. */
const RATE_ALLOWANCE = 1.01;

type Renewal = Pick<Tombstone, "renewedBy" | "leaseMs">;

export class Stopwatches {
  /** By the id and the number of the write that renewed it: numbers are never used again, so an id that returns starts anew. */
  #since = new Map<string, number>();

  /** @param now when the read that brought the document has returned, or the write that made it */
  observe({ entries, tombstones }: LockDocument, now: number): void {
    const since = new Map<string, number>();
    for (const renewals of [entries, tombstones])
      for (const [id, renewal] of renewals) since.set(nameOf(id, renewal), this.#since.get(nameOf(id, renewal)) ?? now);
    this.#since = since;
  }

  /** When it is over, unless it is renewed before: a whole lease from now on if this process has not seen it before. */
  endsAt(id: ClaimId, renewal: Renewal, now: number): number {
    return now - this.#unchangedMs(id, renewal, now) + renewal.leaseMs * RATE_ALLOWANCE;
  }

  isOver(id: ClaimId, renewal: Renewal, now: number): boolean {
    return this.#unchangedMs(id, renewal, now) >= renewal.leaseMs * RATE_ALLOWANCE;
  }

  ageOf(entry: Entry, now: number): number {
    return Math.round(entry.ageMs + this.#unchangedMs(entry.id, entry, now));
  }

  #unchangedMs(id: ClaimId, renewal: Renewal, now: number): number {
    return now - (this.#since.get(nameOf(id, renewal)) ?? now);
  }
}

function nameOf(id: ClaimId, { renewedBy }: Renewal): string {
  return [id, renewedBy].join(" ");
}
