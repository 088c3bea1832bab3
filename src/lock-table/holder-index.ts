/**
 * The claims that hold one key, by their tokens. The number of steps of a lookup does not depend on the number of holders.
 *
 * The token ranges of one key do not overlap, unless a client reclaims a claim with tokens of another one after a restart.
 * Of two claims with the same first token both are kept, the one that can still be revoked first.
 */

import type { ClaimRecord } from "./claim-record.ts";

export class HolderIndex {
  readonly #byFirstToken = new Map<number, ClaimRecord | Set<ClaimRecord>>();
  /** The longest token range so far. */
  #maxTokenCount = 1;

  add(record: ClaimRecord): void {
    const existing = this.#byFirstToken.get(record.token);
    this.#maxTokenCount = Math.max(this.#maxTokenCount, record.tokenCount);
    if (existing === undefined) this.#byFirstToken.set(record.token, record);
    else if (existing instanceof Set) existing.add(record);
    else this.#byFirstToken.set(record.token, new Set([existing, record]));
  }

  remove(record: ClaimRecord): void {
    const existing = this.#byFirstToken.get(record.token);
    if (existing instanceof Set) {
      existing.delete(record);
      if (existing.size === 0) this.#byFirstToken.delete(record.token);
    } else if (existing === record) this.#byFirstToken.delete(record.token);
  }

  /** Moves a revoked claim, which keeps its entry, behind others with the same first token. */
  markRevoked(record: ClaimRecord): void {
    this.remove(record);
    this.add(record);
  }

  /** Finds the holder with this token, which may be any of its range; null: there is none. */
  findByToken(token: number): ClaimRecord | null {
    for (let first = token; first > token - this.#maxTokenCount; first--) {
      const existing = this.#byFirstToken.get(first);
      if (existing === undefined) continue;
      const record = existing instanceof Set ? (existing.values().next().value as ClaimRecord) : existing;
      if (token < first + record.tokenCount) return record;
    }
    return null;
  }
}
