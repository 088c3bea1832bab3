/** Decodes lock references; loaded on the first attach(). */

import type { Claim, LockSpec } from "../spi/driver.ts";
import { isId } from "../util/ids.ts";
import { validateKey } from "../util/keys.ts";
import type { DetachedClaim, EncodedClaim } from "./lock-reference.ts";
import { REFERENCE_VERSION, referenceChecksum } from "./lock-reference.ts";

/** @throws TypeError if it is not a complete, unaltered reference */
export function decodeReference(reference: unknown): readonly DetachedClaim[] {
  if (typeof reference !== "string") throw new TypeError("reference must be a string");
  const [version, body, sum, ...rest] = reference.trim().split(".");
  if (version !== REFERENCE_VERSION) throw new TypeError(`reference must begin with "${REFERENCE_VERSION}."`);
  if (body === undefined || rest.length > 0 || sum !== referenceChecksum(body)) {
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
