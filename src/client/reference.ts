/**
 * A detached lock as a string (design A.23): "hf1." + base64url(JSON) + "." + checksum. The same form for all drivers. It
 * holds the claims' ids and so is a secret; the checksum only tells an altered reference from one that has expired.
 */

import { createHash } from "node:crypto";
import { isId } from "../ids.ts";
import { checkedKey } from "../keys.ts";
import type { Claim, Hold } from "../spi/driver.ts";

const VERSION = "hf1";

/** What a reference says of one claim. */
export interface Referenced {
  readonly claim: Claim;
  /** The first token of the claim's run: by it the store's answer is known to mean the same grant. */
  readonly run: bigint;
  /** The holder's own token, of that run. */
  readonly token: bigint;
  /** The prefix of the client that made it; the rest of each key is what its users named. */
  readonly prefix: string;
}

type Written = readonly [
  id: string,
  holds: readonly (readonly [key: string, permits: number, limit: number])[],
  ttlMs: number,
  run: string,
  token: string,
];

export function makeReference(parts: readonly Referenced[]): string {
  const claims: Written[] = parts.map(({ claim, run, token }) => [
    claim.id,
    claim.holds.map(({ key, permits, limit }) => [key, permits, limit] as const),
    claim.ttlMs === "session" ? 0 : claim.ttlMs,
    String(run),
    String(token),
  ]);
  const body = Buffer.from(JSON.stringify({ p: parts[0]?.prefix ?? "", c: claims })).toString("base64url");
  return `${VERSION}.${body}.${checksum(body)}`;
}

/** @throws TypeError if it is not a whole, unaltered reference */
export function readReference(reference: unknown): readonly Referenced[] {
  if (typeof reference !== "string") throw new TypeError("reference must be a string");
  const [version, body, sum, ...rest] = reference.trim().split(".");
  if (version !== VERSION) throw new TypeError(`reference must begin with "${VERSION}."`);
  if (body === undefined || rest.length > 0 || sum !== checksum(body)) {
    throw new TypeError("reference is damaged: it was cut or altered");
  }
  try {
    const { p: prefix, c: claims } = JSON.parse(Buffer.from(body, "base64url").toString()) as {
      p: string;
      c: Written[];
    };
    if (typeof prefix !== "string" || claims.length === 0) throw new TypeError("no claims");
    return claims.map((written) => readClaim(written, prefix));
  } catch (cause) {
    throw new TypeError("reference must be one made by detach()", { cause });
  }
}

function readClaim([id, written, ttlMs, run, token]: Written, prefix: string): Referenced {
  if (!isId(id)) throw new TypeError("no id");
  const holds = written.map(([key, permits, limit]): Hold => ({ key: checkedKey(key), permits, limit }));
  const [first, ...rest] = holds;
  if (first === undefined || typeof ttlMs !== "number") throw new TypeError("no holds");
  const claim: Claim = {
    id,
    holds: [first, ...rest],
    ttlMs: ttlMs === 0 ? "session" : ttlMs,
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "",
  };
  return { claim, run: BigInt(run), token: BigInt(token), prefix };
}

function checksum(body: string): string {
  return createHash("sha256").update(`${VERSION}.${body}`).digest("base64url").slice(0, 8);
}
