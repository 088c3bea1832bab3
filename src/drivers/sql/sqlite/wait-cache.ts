/**
 * Remembers what waiting claims were told. A recheck gets the same answer without reading the queue while no connection
 * has committed anything, this one included, no claim ahead has expired, and the claim's own lease needs no restart.
 */

import type { ClaimId } from "../../../spi/driver.ts";
import type { Wait } from "./routines.ts";
import { formatWaitReply, isFresh } from "./routines.ts";
import type { DatabaseVersion } from "./rows.ts";

export class WaitCache {
  readonly #waits = new Map<ClaimId, { readonly wait: Wait; readonly stamp: string }>();

  set(id: ClaimId, wait: Wait | undefined, stamp: string): void {
    if (wait === undefined) this.#waits.delete(id);
    else this.#waits.set(id, { wait, stamp });
  }

  delete(id: ClaimId): void {
    this.#waits.delete(id);
  }

  /** The reply, if it is certainly still the same. */
  reply(id: ClaimId, { now, stamp }: DatabaseVersion): string | null {
    const known = this.#waits.get(id);
    if (known === undefined || known.stamp !== stamp) return null;
    const { wait } = known;
    return now < wait.firstExpires && isFresh(wait, now) ? formatWaitReply(wait, now) : null;
  }
}
