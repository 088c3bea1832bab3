/** Claim ids, which are secrets, and tags, which identify claims publicly without revealing their ids. */

import { createHash, randomFillSync } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const ID_CHARS = 26;

/** Random characters for the next ids. */
const idPool = Buffer.allocUnsafeSlow(256 * ID_CHARS);
let poolOffset = idPool.length;

/** 130 random bits from the system's generator in base32 (26 characters): cannot be guessed; safe in keys, paths and SQL. */
export function randomId(): string {
  if (poolOffset === idPool.length) {
    randomFillSync(idPool);
    for (let index = 0; index < idPool.length; index++)
      idPool[index] = ALPHABET.charCodeAt((idPool[index] as number) & 31);
    poolOffset = 0;
  }
  poolOffset += ID_CHARS;
  return idPool.toString("latin1", poolOffset - ID_CHARS, poolOffset);
}

/** Does the text have the form of an id from randomId()? */
export function isId(text: unknown): text is string {
  return typeof text === "string" && /^[a-z2-7]{26}$/.test(text);
}

/** The public name of a claim: the first 10 characters of base32(SHA-256(id)). */
export function publicTag(id: string): string {
  const digest = createHash("sha256").update(id).digest();
  let tag = "";
  for (let bit = 0; bit < 50; bit += 5) {
    const word = digest.readUInt16BE(bit >> 3);
    tag += ALPHABET[(word >> (16 - 5 - (bit & 7))) & 31] as string;
  }
  return tag;
}
