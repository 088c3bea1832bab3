/**
 * Encodes a detached lock as a string, the lock reference, and decodes it: "hf1." + base64url(JSON) + "." + checksum, for all
 * drivers. It contains the claims' ids and so is a secret. The checksum distinguishes an altered reference from one that has
 * expired.
 */

import type { Claim, LockSpec } from "../spi/driver.ts";
import { computeChecksum } from "../util/checksum.ts";
import { isId } from "../util/ids.ts";
import { validateKey } from "../util/keys.ts";

/** The version of the reference format. */
const REFERENCE_VERSION = "hf1";

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
type EncodedClaim = readonly [
  id: string,
  locks: readonly (readonly [key: string, permits: number, limit: number])[],
  ttlMs: number,
  firstToken: string,
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

/** @throws TypeError if it is not a complete, unaltered reference */
export function decodeReference(reference: unknown): readonly DetachedClaim[] {
  if (typeof reference !== "string") throw new TypeError("reference must be a string");
  // a gateway with accounts adds two parts (gateway/reference-seal.ts), which only gateways read
  const [version, body, sum, ...seal] = reference.trim().split(".");
  if (version !== REFERENCE_VERSION) throw new TypeError(`reference must begin with "${REFERENCE_VERSION}."`);
  if (body === undefined || (seal.length !== 0 && seal.length !== 2) || sum !== referenceChecksum(body)) {
    throw new TypeError("reference is damaged: it was cut or altered");
  }
  try {
    const { p: prefix, c: claims } = JSON.parse(Buffer.from(body, "base64url").toString()) as {
      p: string;
      c: EncodedClaim[];
    };
    if (typeof prefix !== "string" || claims.length === 0) throw new TypeError("no claims");
    return claims.map((encodedClaim) => decodeClaim(encodedClaim, prefix));
  } catch (cause) {
    throw new TypeError("reference must be one made by detach()", { cause });
  }
}

function decodeClaim([id, encodedSpecs, ttlMs, firstToken, token]: EncodedClaim, prefix: string): DetachedClaim {
  if (!isId(id)) throw new TypeError("no id");
  const specs = encodedSpecs.map(([key, permits, limit]): LockSpec => ({ key: validateKey(key), permits, limit }));
  const [first, ...rest] = specs;
  if (first === undefined || typeof ttlMs !== "number") throw new TypeError("no lock specs");
  const claim: Claim = {
    id,
    locks: [first, ...rest],
    ttlMs: ttlMs === 0 ? "session" : ttlMs,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "",
  };
  return { claim, firstToken: BigInt(firstToken), token: BigInt(token), prefix };
}

/** Detects an altered reference. No protection against forgery: a reader of the reference already has the lock. */
function referenceChecksum(body: string): string {
  return computeChecksum(`${REFERENCE_VERSION}.${body}`, "base64url", 8);
}
