/** What operators see and end: lists, and forced releases. */

import { checkedLabel } from "../../keys.ts";
import type { ClaimView, Hold, ListFilter } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { Hub } from "../hub.ts";
import type { Call, Reply, Route } from "./call.ts";
import { json } from "./call.ts";
import { flagIn, missing, neededText, readBody, readQuery } from "./fields.ts";
import { asked, visitor } from "./place.ts";
import { invalid, Problem } from "./problem.ts";
import { keyFrom } from "./wanted.ts";

const USUAL_PAGE = 100;
/** The longest reason of a revocation, in characters. */
const MOST_REASON = 256;

export function lockRoutes(hub: Hub): readonly Route[] {
  const { backend, limits, clock } = hub;

  async function list({ incoming, principal }: Call): Promise<Reply> {
    const query = readQuery(incoming.url as string, ["prefix", "key", "limit", "cursor"]);
    const filter = filterFrom(query.get("prefix"), query.get("key"));
    const max = pageFrom(query.get("limit"), limits.page);
    const cursor = query.get("cursor");
    if (cursor !== undefined && !/^[a-z2-7]{10}$/.test(cursor)) {
      throw invalid("cursor", "malformed", "cursor must be the one of the page before");
    }
    const { views, more } = await asked(hub, () => backend.list(visitor(principal, clock.now()), filter, max, cursor));
    const last = views.at(-1)?.tag;
    return json(200, { locks: views.map(viewOf), cursor: more && last !== undefined ? last : null });
  }

  async function revoke({ incoming, principal }: Call): Promise<Reply> {
    const body = await readBody(incoming, limits.lineBytes, limits.depth);
    if (!body.has("key")) throw missing("key");
    const key = keyFrom(body.get("key"), "key", limits);
    const token = neededText(body, "token");
    if (!/^\d{1,19}$/.test(token)) throw invalid("token", "malformed", "token must be a decimal string");
    const reason = reasonFrom(neededText(body, "reason"));
    const now = flagIn(body, "now", false);
    if (!principal.may("force", key)) {
      throw new Problem(403, "FORBIDDEN", "rights", "this credential may not end locks of such a key");
    }
    const targets = [{ key, token: BigInt(token), now, reason }];
    const [done] = await asked(hub, () => backend.revoke(visitor(principal, clock.now()), targets));
    if (done !== true) {
      const why = "nobody holds this key with this token; nothing was changed";
      throw new Problem(409, "NOT_HELD", "unknown", why);
    }
    return json(200, { state: now ? "removed" : "revoked", key, token });
  }

  return [
    { method: "GET", path: "/v1/locks", handle: list },
    { method: "POST", path: "/v1/locks/revoke", handle: revoke },
  ];
}

function filterFrom(prefix: string | undefined, key: string | undefined): ListFilter {
  if (key === undefined) return { prefix: prefix ?? "" };
  if (prefix === undefined) return { key };
  throw invalid("key", "conflict", "give prefix or key, not both");
}

function pageFrom(text: string | undefined, most: number): number {
  if (text === undefined) return Math.min(USUAL_PAGE, most);
  const limit = Number(text);
  if (!/^\d{1,9}$/.test(text) || limit < 1 || limit > most) {
    throw invalid("limit", "range", `limit must be a whole number from 1 to ${most}`);
  }
  return limit;
}

function reasonFrom(text: string): string {
  const reason = text.trim();
  if (reason === "" || reason.length > MOST_REASON) {
    throw invalid("reason", "range", `reason must have 1 to ${MOST_REASON} characters: it is logged`);
  }
  return checkedLabel(reason);
}

function viewOf({ tag, holds, answer, ttlMs, label, ageMs }: ClaimView): object {
  const isHeld = answer.state === "held";
  return {
    tag,
    state: isHeld ? "held" : "waiting",
    holds: holds.map(holdOf),
    // a store may not tell it of each claim in the queue of one key
    token: isHeld && answer.token > 0n ? String(answer.token) : null,
    ttlMs: ttlMs === "session" || answer.state === "none" ? null : Math.max(0, Math.floor(answer.ttlMs)),
    label,
    ageMs: Math.floor(ageMs),
  };
}

function holdOf({ key, permits, limit }: Hold): object {
  if (limit < ALL_PERMITS) return { key, mode: "semaphore", permits, limit };
  return { key, mode: permits === ALL_PERMITS ? "exclusive" : "shared" };
}
