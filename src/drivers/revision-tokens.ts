/**
 * Tokens of stores that number their changes: the number of the change that has created a claim's entry (a revision of etcd, a transaction
 * of ZooKeeper), followed by room for the holders that take turns with one entry.
 */

/** The size of a grant's token range, which local hand-offs use. */
const TOKENS_PER_ENTRY = 1_024n;
/** Tokens must fit into signed 64 bits, with room for those of the store itself. */
const MAX_TOKEN_BASE = 2n ** 62n;

export class RevisionTokens {
  readonly #base: bigint;

  /** @param base is added to every token */
  constructor(base: bigint) {
    this.#base = base;
  }

  /** The first token of an entry that this revision has created. */
  first(revision: bigint): bigint {
    return revision * TOKENS_PER_ENTRY + this.#base;
  }

  /** How many tokens a claim has that asks for so many. */
  count(requested: number): number {
    return Math.min(requested, Number(TOKENS_PER_ENTRY));
  }

  /** Is it one of the tokens of this entry, whose claim has asked for so many? */
  has(revision: bigint, requested: number, token: bigint): boolean {
    const first = this.first(revision);
    return token >= first && token < first + BigInt(this.count(requested));
  }

  /** The revision that has created the entry with this token. */
  toRevision(token: bigint): bigint {
    return (token - this.#base) / TOKENS_PER_ENTRY;
  }
}

/** The rule of the option tokenBase. */
export const tokenBaseRule = (value: unknown): string | null =>
  typeof value === "bigint" && value >= 0n && value < MAX_TOKEN_BASE ? null : `a bigint from 0n to ${MAX_TOKEN_BASE}n`;

/** Why a claim is refused whose tokens would be below its floor. */
export function explainLowTokens(driver: string): string {
  return `${driver}: its tokens are below those seen on this key before: set tokenBase if the locks were moved from another store`;
}
