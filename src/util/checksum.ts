/**
 * Checksums of stored text, and lines that begin with theirs. They detect damage, not manipulation: a process that can write
 * the text can compute its checksum, too.
 */

import { hash } from "node:crypto";

export const CHECKSUM_CHARS = 16;

/** The first characters of the SHA-256 of the text, or of the bytes. */
export function computeChecksum(
  text: string | Uint8Array,
  encoding: "hex" | "base64url" = "hex",
  length: number = CHECKSUM_CHARS,
): string {
  return hash("sha256", text, encoding).slice(0, length);
}

/** Encodes a text without line feeds as "<checksum> <text>". */
export function encodeCheckedLine(text: string): string {
  return `${computeChecksum(text)} ${text}\n`;
}

/** Returns the text of such a line (without its line feed), or null if it is damaged. */
export function decodeCheckedLine(line: string): string | null {
  const text = line.slice(CHECKSUM_CHARS + 1);
  return line === `${computeChecksum(text)} ${text}` ? text : null;
}
