/** The routes for operators: list claims, and revoke a lock. */

import type { ClaimView, ListFilter, LockSpec } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { cleanLabel } from "../../util/keys.ts";
import type { LockService } from "../service.ts";
import { missingField, optionalBoolean, parseQuery, readBody, requiredString } from "./body-fields.ts";
import { parseKey } from "./claim-request.ts";
import { callBackend, createRequestSession } from "./pending-claim.ts";
import { invalidField, Problem } from "./problem.ts";
import type { HttpReply, RequestContext, Route } from "./request-context.ts";
import { jsonReply } from "./request-context.ts";

const DEFAULT_PAGE_SIZE = 100;
/** The longest reason of a revocation, in characters. */
const MAX_REASON_CHARS = 256;

export function lockRoutes(service: LockService): readonly Route[] {
  const { backend, limits, clock } = service;

  async function list({ incoming, principal }: RequestContext): Promise<HttpReply> {
    const query = parseQuery(incoming.url as string, ["prefix", "key", "limit", "cursor"]);
    const filter = parseFilter(query.get("prefix"), query.get("key"));
    const max = parsePageSize(query.get("limit"), limits.pageSize);
    const cursor = query.get("cursor");
    if (cursor !== undefined && !/^[a-z2-7]{10}$/.test(cursor)) {
      throw invalidField("cursor", "malformed", "cursor must be the cursor of the previous page");
    }
    const { views, hasMore } = await callBackend(service, () =>
      backend.list(createRequestSession(principal, clock.now()), filter, max, cursor),
    );
    const last = views.at(-1)?.tag;
    return jsonReply(200, { locks: views.map(toLockJson), cursor: hasMore && last !== undefined ? last : null });
  }

  async function revoke({ incoming, principal }: RequestContext): Promise<HttpReply> {
    const body = await readBody(incoming, limits.lineBytes, limits.depth);
    if (!body.has("key")) throw missingField("key");
    const key = parseKey(body.get("key"), "key", limits);
    const token = requiredString(body, "token");
    if (!/^\d{1,19}$/.test(token)) throw invalidField("token", "malformed", "token must be a decimal string");
    const reason = parseReason(requiredString(body, "reason"));
    const now = optionalBoolean(body, "now", false);
    if (!principal.can("force", key)) {
      throw new Problem("FORBIDDEN", "rights", "this credential does not have the right to revoke locks on this key");
    }
    const targets = [{ key, token: BigInt(token), now, reason }];
    const [isRevoked] = await callBackend(service, () =>
      backend.revoke(createRequestSession(principal, clock.now()), targets),
    );
    if (isRevoked !== true) {
      const message = "no claim holds this key with this token; nothing was changed";
      throw new Problem("NOT_HELD", "unknown", message);
    }
    return jsonReply(200, { state: now ? "removed" : "revoked", key, token });
  }

  return [
    { method: "GET", path: "/v1/locks", handle: list },
    { method: "POST", path: "/v1/locks/revoke", handle: revoke },
  ];
}

function parseFilter(prefix: string | undefined, key: string | undefined): ListFilter {
  if (key === undefined) return { prefix: prefix ?? "" };
  if (prefix === undefined) return { key };
  throw invalidField("key", "conflict", "give prefix or key, not both");
}

function parsePageSize(text: string | undefined, maxSize: number): number {
  if (text === undefined) return Math.min(DEFAULT_PAGE_SIZE, maxSize);
  const limit = Number(text);
  if (!/^\d{1,9}$/.test(text) || limit < 1 || limit > maxSize) {
    throw invalidField("limit", "range", `limit must be an integer from 1 to ${maxSize}`);
  }
  return limit;
}

function parseReason(text: string): string {
  const reason = text.trim();
  if (reason === "" || reason.length > MAX_REASON_CHARS) {
    throw invalidField("reason", "range", `reason must have 1 to ${MAX_REASON_CHARS} characters: it is logged`);
  }
  return cleanLabel(reason);
}

function toLockJson({ tag, locks, answer, ttlMs, label, ageMs }: ClaimView): object {
  const isHeld = answer.state === "held";
  return {
    tag,
    state: isHeld ? "held" : "waiting",
    holds: locks.map(toLockSpecJson),
    // some stores do not report the token of every claim in the queue of one key
    token: isHeld && answer.token > 0n ? String(answer.token) : null,
    ttlMs: ttlMs === "session" || answer.state === "none" ? null : Math.max(0, Math.floor(answer.remainingMs)),
    label,
    ageMs: Math.floor(ageMs),
  };
}

function toLockSpecJson({ key, permits, limit }: LockSpec): object {
  if (limit < ALL_PERMITS) return { key, mode: "semaphore", permits, limit };
  return { key, mode: permits === ALL_PERMITS ? "exclusive" : "shared" };
}
