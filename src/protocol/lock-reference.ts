/**
 * Encodes a detached lock as a string, the lock reference: "hf1." + base64url(JSON) + "." + checksum, for all drivers. It
 * contains the claims' ids and so is a secret. The checksum distinguishes an altered reference from one that has expired.
 */

import type { Claim } from "../spi/driver.ts";
import { computeChecksum } from "../util/checksum.ts";

/** The version of the reference format. */
export const REFERENCE_VERSION = "hf1";

/** One claim of a lock reference. */
export interface DetachedClaim {
  readonly claim: Claim;
  /** The first token of the claim's range: it shows that the store's answer is about the same grant. */
  readonly firstToken: bigint;
  /** The holder's own token, from that range. */
  readonly token: bigint;
  /** The key prefix of the client that made the reference. */
  readonly prefix: string;
}

/** The encoded form of one claim. */
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
    claim.locks.map(({ key, permits, limit }) => [key, permits, limit] as const),
    claim.ttlMs === "session" ? 0 : claim.ttlMs,
    String(firstToken),
    String(token),
  ]);
  const body = Buffer.from(JSON.stringify({ p: parts[0]?.prefix ?? "", c: claims })).toString("base64url");
  return `${REFERENCE_VERSION}.${body}.${referenceChecksum(body)}`;
}

/** Detects an altered reference. No protection against forgery: a reader of the reference already has the lock. */
export function referenceChecksum(body: string): string {
  return computeChecksum(`${REFERENCE_VERSION}.${body}`, "base64url", 8);
}
