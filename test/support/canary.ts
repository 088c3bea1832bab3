/** The mark that every secret of this test run has in it (scripts/test/canary.ts); null: the run has none. */

export const MARK: string | null = markIn(process.env.NODE_OPTIONS ?? "");

/** @throws Error if a secret stands in this text */
export function checkNoSecret(text: string, where: string): void {
  if (MARK !== null && text.includes(MARK)) throw new Error(`a secret (the canary) stands in ${where}`);
}

function markIn(options: string): string | null {
  const hex = /[?]mark=([0-9a-f]+)/.exec(options)?.[1];
  return hex === undefined ? null : Buffer.from(hex, "hex").toString();
}
