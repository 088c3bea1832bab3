/** Claim ids, which are secrets, and the tags by which people tell claims apart without learning them. */

import { createHash, randomFillSync } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
/** Base32 of ten bits at a time. */
const PAIRS: readonly string[] = Array.from(
  { length: 1_024 },
  (_, bits) => (ALPHABET[bits >> 5] as string) + (ALPHABET[bits & 31] as string),
);

const pool = new Uint16Array(4_096);
let used = pool.length;

/** 130 random bits from the system's generator in base32 (26 characters): nobody can guess it, safe in keys, paths and SQL. */
export function newId(): string {
  if (used + 13 > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  let id = "";
  for (const end = used + 13; used < end; used++) id += PAIRS[(pool[used] as number) & 1_023] as string;
  return id;
}

/** Is this the form of an id made by newId()? */
export function isId(text: unknown): text is string {
  return typeof text === "string" && /^[a-z2-7]{26}$/.test(text);
}

/** The public name of a claim: the first 10 characters of base32(SHA-256(id)). */
export function tagOf(id: string): string {
  const digest = createHash("sha256").update(id).digest();
  let tag = "";
  for (let bit = 0; bit < 50; bit += 10) {
    const word = digest.readUIntBE(bit >> 3, 3);
    tag += PAIRS[(word >> (24 - 10 - (bit & 7))) & 1_023] as string;
  }
  return tag;
}
