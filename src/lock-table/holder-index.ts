/**
 * The claims that hold one key, by their tokens: whoever holds with a token is found in a few steps however many hold.
 *
 * Runs of tokens of one key do not overlap, except where a client said after a restart that it held with tokens of
 * another's. Two that begin with the same token are both kept, the one that can still be revoked first.
 */

import type { ClaimRecord } from "./claim-record.ts";

export class HolderIndex {
  readonly #byFirstToken = new Map<number, ClaimRecord | Set<ClaimRecord>>();
  /** No run is longer. */
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

  /** It was revoked and keeps its place: others with its token come first from now on. */
  markRevoked(record: ClaimRecord): void {
    this.remove(record);
    this.add(record);
  }

  /** Who holds with this token, which may be any of its run; null: nobody does. */
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
