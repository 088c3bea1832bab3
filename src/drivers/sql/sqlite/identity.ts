/**
 * Compares a database with the one that was used before (option guardDataLoss). Its identity row names the file, and a
 * number that every write of a guarded client raises. By the file a process recognizes a copy of the database, and a
 * new database. By the number, if it is lower than one that the process has seen, it recognizes that an older state was
 * put back into the file: its own commits are missing.
 *
 * A restart loses nothing, so it costs no grace period.
 */

import type { Identity, SqliteRows } from "./rows.ts";

const NONE: Identity = { file: "", sequence: 0, graceBegins: 0, graceEnds: 0 };

export class IdentityCheck {
  readonly #rows: SqliteRows;
  readonly #file: string;
  /** Microseconds. */
  readonly #maxTtl: number;
  /** The highest number of a commit that this process has seen. */
  #seen = 0;
  /** What the last look has written: it counts once its transaction is committed. */
  #written = 0;

  constructor(rows: SqliteRows, file: string, maxTtlMs: number) {
    this.#rows = rows;
    this.#file = file;
    this.#maxTtl = maxTtlMs * 1_000;
  }

  /**
   * In a write transaction, before anything is decided. Notes a loss of data: begins a grace period. Returns its end;
   * 0: none is running. `isLost`: the caller knows of a loss.
   */
  check(now: number, isLost = false): number {
    const found = this.#rows.readIdentity() ?? NONE;
    const next = this.#next(found, now, isLost);
    this.#written = Math.max(found.sequence, this.#seen) + 1;
    this.#rows.writeIdentity({ ...next, sequence: this.#written });
    return next.graceEnds > now ? next.graceEnds : 0;
  }

  /** In a read transaction: whether check() would return 0. */
  isQuiet(now: number): boolean {
    const found = this.#rows.readIdentity();
    return found !== null && this.#isSame(found) && found.graceEnds <= now;
  }

  /** Call it in the transaction of check(); the result reports that the transaction was committed. */
  createCommitListener(): () => void {
    const written = this.#written;
    return () => {
      this.#seen = Math.max(this.#seen, written);
    };
  }

  #isSame({ file, sequence }: Identity): boolean {
    return file === this.#file && sequence >= this.#seen;
  }

  /** A grace period is never made shorter; a client with a longer ttl makes it longer. */
  #next(found: Identity, now: number, isLost: boolean): Identity {
    const isRunning = found.graceEnds > now;
    if (this.#isSame(found) && (!isLost || isRunning)) {
      if (!isRunning) return found;
      if (found.graceBegins <= now)
        return { ...found, graceEnds: Math.max(found.graceEnds, found.graceBegins + this.#maxTtl) };
    }
    // after a step back of the clock an earlier period has no more left than its length
    const left = Math.min(found.graceEnds - now, found.graceEnds - found.graceBegins);
    return { ...found, file: this.#file, graceBegins: now, graceEnds: now + Math.max(this.#maxTtl, left) };
  }
}
