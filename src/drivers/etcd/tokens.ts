/** Tokens are the create revisions of entries, each followed by room for the holders that take turns with one entry. */

/** The size of a grant's token range, which local hand-offs use. */
const TOKENS_PER_ENTRY = 1_024n;

/** The first token of an entry that this revision has created. */
export function toToken(createRevision: bigint, tokenBase: bigint): bigint {
  return createRevision * TOKENS_PER_ENTRY + tokenBase;
}

/** The revision that has created the entry with this token. */
export function toCreateRevision(token: bigint, tokenBase: bigint): bigint {
  return (token - tokenBase) / TOKENS_PER_ENTRY;
}

/** How many tokens a claim has that asks for so many. */
export function toTokenCount(requested: number): number {
  return Math.min(requested, Number(TOKENS_PER_ENTRY));
}
