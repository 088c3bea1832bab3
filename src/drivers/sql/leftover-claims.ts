/**
 * Releases claims again that the database still has although this client has released them. A standby that is promoted
 * may have missed the last releases: then others would wait for the whole lease (decision 0050).
 *
 * After a failed call, as soon as another call succeeds, the driver reads the claims of this process and releases those
 * again that it has released before.
 */

import type { ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { OwnedRow } from "./dialect.ts";

/** Reading reads all rows: calls that fail again and again must not repeat it each time. */
const MIN_INTERVAL_MS = 5_000;

export interface LeftoverClaimsContext {
  readonly clock: Clock;
  /** Reads the claims of this process that are neither detached nor revoked. */
  readonly read: () => Promise<readonly OwnedRow[]>;
  /** Has this client released the claim? See RecentReleases. */
  readonly isReleased: (id: ClaimId) => boolean;
  readonly release: (rows: readonly OwnedRow[]) => Promise<unknown>;
}

export class LeftoverClaims {
  readonly #context: LeftoverClaimsContext;
  #isDue = false;
  #isRunning = false;
  /** The connection for pushes broke, or was opened again, while the claims were read. */
  #mustRepeat = false;
  #lastReadAt = Number.NEGATIVE_INFINITY;

  constructor(context: LeftoverClaimsContext) {
    this.#context = context;
  }

  /** A call failed: another server may be the primary now. */
  onFailure(): void {
    this.#isDue = true;
  }

  /** The connection for pushes broke, or is open again. This process may make no call for long. */
  onBreak(): void {
    this.#mustRepeat = this.#isRunning;
    this.#isDue = true;
    this.#lastReadAt = Number.NEGATIVE_INFINITY;
    this.onAnswered();
  }

  /** The database has answered. */
  onAnswered(): void {
    if (!this.#isDue || this.#isRunning) return;
    if (this.#context.clock.now() - this.#lastReadAt < MIN_INTERVAL_MS) return;
    this.#isDue = false;
    this.#isRunning = true;
    this.#releaseAgain()
      .catch(() => this.onFailure())
      .finally(() => {
        this.#isRunning = false;
        if (this.#mustRepeat) this.onBreak();
      });
  }

  async #releaseAgain(): Promise<void> {
    const rows = await this.#context.read();
    this.#lastReadAt = this.#context.clock.now();
    const lost = rows.filter(({ id }) => this.#context.isReleased(id));
    if (lost.length > 0) await this.#context.release(lost);
  }
}
