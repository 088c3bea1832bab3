/**
 * A detached lock as a string (design A.23): "hf1." + base64url(JSON) + "." + checksum. The same form for all drivers. It
 * holds the claims' ids and so is a secret; the checksum only tells an altered reference from one that has expired.
 */

import { createHash } from "node:crypto";
import type { Claim } from "../spi/driver.ts";

/** The form of references made by this version. */
export const REFERENCE_VERSION = "hf1";

/** What a reference says of one claim. */
export interface DetachedClaim {
  readonly claim: Claim;
  /** The first token of the claim's run: by it the store's answer is known to mean the same grant. */
  readonly firstToken: bigint;
  /** The holder's own token, of that run. */
  readonly token: bigint;
  /** The prefix of the client that made it; the rest of each key is what its users named. */
  readonly prefix: string;
}

/** One claim as it is written. */
export type EncodedClaim = readonly [
  id: string,
  holds: readonly (readonly [key: string, permits: number, limit: number])[],
  ttlMs: number,
  run: string,
  token: string,
];

export function encodeReference(parts: readonly DetachedClaim[]): string {
  const claims: EncodedClaim[] = parts.map(({ claim, firstToken, token }) => [
    claim.id,
    claim.holds.map(({ key, permits, limit }) => [key, permits, limit] as const),
    claim.ttlMs === "session" ? 0 : claim.ttlMs,
    String(firstToken),
    String(token),
  ]);
  const body = Buffer.from(JSON.stringify({ p: parts[0]?.prefix ?? "", c: claims })).toString("base64url");
  return `${REFERENCE_VERSION}.${body}.${referenceChecksum(body)}`;
}

/** Tells an altered reference; no protection, since who can read it holds it. */
export function referenceChecksum(body: string): string {
  return createHash("sha256").update(`${REFERENCE_VERSION}.${body}`).digest("base64url").slice(0, 8);
}
