/** The mark that every secret of this test run has in it (scripts/test/secret-scan.ts); null: the run has none. */

export const SECRET_MARK: string | null = readMark(process.env.NODE_OPTIONS ?? "");

/** @throws Error if a secret stands in this text */
export function expectNoSecret(text: string, source: string): void {
  if (SECRET_MARK !== null && text.includes(SECRET_MARK)) throw new Error(`a secret (the canary) stands in ${source}`);
}

function readMark(options: string): string | null {
  const hex = /[?]mark=([0-9a-f]+)/.exec(options)?.[1];
  return hex === undefined ? null : Buffer.from(hex, "hex").toString();
}
