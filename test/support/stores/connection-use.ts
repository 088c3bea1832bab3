/** Watches how the calls for one bucket take connections of a pool. */

import { REMOTE_ALONE_MS } from "../../../src/drivers/sql/call-scheduler.ts";

/** Timers and this clock may differ by a millisecond. */
const TOLERANCE_MS = 1;

export class ConnectionUse {
  takenCount = 0;
  /** How often a connection was taken while another one was in use that had been taken within a turn. */
  overlapCount = 0;
  /** When those in use were taken. */
  readonly #takenAt = new Set<{ readonly at: number }>();

  /** Call the result when the connection is returned. */
  take(): () => void {
    const taken = { at: performance.now() };
    this.takenCount++;
    if ([...this.#takenAt].some(({ at }) => taken.at - at < REMOTE_ALONE_MS - TOLERANCE_MS)) this.overlapCount++;
    this.#takenAt.add(taken);
    return () => this.#takenAt.delete(taken);
  }
}
