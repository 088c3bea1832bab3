/** Reads what reference.ts makes; loaded when a lock is attached. */

import { isId } from "./ids.ts";
import { checkedKey } from "./keys.ts";
import type { Referenced, Written } from "./reference.ts";
import { checksum, VERSION } from "./reference.ts";
import type { Claim, Hold } from "./spi/driver.ts";

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
