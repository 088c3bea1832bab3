/** Claim ids, which are secrets, and the tags by which people tell claims apart without learning them. */

import { createHash, randomFillSync } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const ID_CHARS = 26;

/** Characters of ids to come. */
const pool = Buffer.allocUnsafeSlow(256 * ID_CHARS);
let used = pool.length;

/** 130 random bits from the system's generator in base32 (26 characters): nobody can guess it, safe in keys, paths and SQL. */
export function newId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    for (let at = 0; at < pool.length; at++) pool[at] = ALPHABET.charCodeAt((pool[at] as number) & 31);
    used = 0;
  }
  used += ID_CHARS;
  return pool.toString("latin1", used - ID_CHARS, used);
}

/** Is this the form of an id made by newId()? */
export function isId(text: unknown): text is string {
  return typeof text === "string" && /^[a-z2-7]{26}$/.test(text);
}

/** The public name of a claim: the first 10 characters of base32(SHA-256(id)). */
export function tagOf(id: string): string {
  const digest = createHash("sha256").update(id).digest();
  let tag = "";
  for (let bit = 0; bit < 50; bit += 5) {
    const word = digest.readUInt16BE(bit >> 3);
    tag += ALPHABET[(word >> (16 - 5 - (bit & 7))) & 31] as string;
  }
  return tag;
}
