/** The routes for operators: list claims, and revoke a lock. */

import { createRoute, z } from "@hono/zod-openapi";
import { PROTOCOL_LIMITS } from "../../protocol/handshake.ts";
import { toClaimInfo } from "../../spi/claim-info.ts";
import type { ClaimView } from "../../spi/driver.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { jsonResponse, parseListQuery, parseQuery, readBody } from "./context.ts";
import { invalidField } from "./problem.ts";
import { revokeLock } from "./revocation.ts";
import type { Routes } from "./route-parts.ts";
import { jsonRequest, postProblemResponses, problemResponses, response, STORE_ERRORS } from "./route-parts.ts";
import { Locks, parseRevokeRequest, REQUESTS, Revoked } from "./schemas.ts";

const DEFAULT_PAGE_SIZE = 100;

const PageQuery = z.object({
  prefix: z.string().optional().describe("Only claims with a key that begins with this prefix. Default: all."),
  key: z
    .string()
    .optional()
    .describe("Only the queue of this key, without a search through other keys. Not together with `prefix`."),
  limit: z
    .int()
    .min(1)
    .max(PROTOCOL_LIMITS.pageSize)
    .optional()
    .describe(`The largest number of claims in the page. Default: ${DEFAULT_PAGE_SIZE}.`),
  cursor: z.string().optional().describe("The cursor of the previous page."),
});

export const LOCK_ROUTES: Routes<keyof LockRoutes> = {
  list: createRoute({
    method: "get",
    path: "/v1/locks",
    summary: "List holders and waiters",
    request: { query: PageQuery },
    responses: {
      200: response("One page of claims.", Locks),
      ...problemResponses("INVALID", "AUTH", ...STORE_ERRORS),
    },
  }),
  revoke: createRoute({
    method: "post",
    path: "/v1/locks/revoke",
    summary: "Revoke a lock",
    request: jsonRequest(REQUESTS.revoke, { key: "invoice:42", token: "1800000001000000", reason: "its host is gone" }),
    responses: {
      200: response("The lock is revoked; with `now`, it is free at once.", Revoked),
      ...postProblemResponses("NOT_HELD", "UNSUPPORTED"),
    },
  }),
};

export class LockRoutes {
  readonly #service: GatewayService;

  constructor(service: GatewayService) {
    this.#service = service;
  }

  async list(c: HttpContext): Promise<Response> {
    const query = parseQuery(c, Object.keys(PageQuery.shape));
    const filter = parseListQuery(query);
    const max = parsePageSize(query.get("limit"), PROTOCOL_LIMITS.pageSize);
    const cursor = query.get("cursor");
    if (cursor !== undefined && !/^[a-z2-7]{10}$/.test(cursor)) {
      throw invalidField("cursor", "malformed", "cursor must be the cursor of the previous page");
    }
    const { items, next } = await this.#service.store.list(c.get("principal"), filter, max, cursor);
    return jsonResponse(c, { locks: items.map(toLockJson), cursor: next ?? null });
  }

  async revoke(c: HttpContext): Promise<Response> {
    const target = parseRevokeRequest(await readBody(c, this.#service.limits.lineBytes));
    const { key, token, now } = target;
    await revokeLock(this.#service, c.get("principal"), target);
    return jsonResponse(c, { state: now ? "removed" : "revoked", key, token: String(token) });
  }
}

function parsePageSize(text: string | undefined, maxSize: number): number {
  if (text === undefined) return Math.min(DEFAULT_PAGE_SIZE, maxSize);
  const limit = Number(text);
  if (!/^\d{1,9}$/.test(text) || limit < 1 || limit > maxSize) {
    throw invalidField("limit", "range", `limit must be an integer from 1 to ${maxSize}`);
  }
  return limit;
}

function toLockJson(view: ClaimView): object {
  const { token, ...info } = toClaimInfo(view);
  return { ...info, token: token === null ? null : String(token) }; // JSON has no bigint
}
