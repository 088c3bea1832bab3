/** Parses the body of POST /v1/claims to a claim. */

import type { Claim, LockSpec, Traits } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { MIN_TTL_MS } from "../../util/duration.ts";
import { randomId } from "../../util/ids.ts";
import { cleanLabel, validateKey } from "../../util/keys.ts";
import { formatExactDuration } from "../capabilities.ts";
import type { ServerLimits } from "../config/limits.ts";
import type { JsonBody } from "./body-fields.ts";
import { missingField, optionalDuration, optionalInteger, optionalString } from "./body-fields.ts";
import { invalidField, Problem } from "./problem.ts";

/** The longest wait of one request. After that the client receives "waiting" and may repeat the request. */
const MAX_WAIT_MS = 25_000;
const DEFAULT_TTL_MS = 30_000;

/** The claim to make, and how long the request waits for it; 0: the claim never waits. */
export interface ClaimRequest {
  readonly claim: Claim;
  readonly waitMs: number;
}

/** @throws Problem that names the invalid field */
export function parseClaimRequest(
  body: JsonBody,
  limits: ServerLimits,
  traits: Traits,
  defaultLabel: string,
): ClaimRequest {
  const keys = parseKeys(body, limits);
  const permitSpec = parsePermitSpec(body);
  checkStoreTraits(traits, keys.length, permitSpec);
  const waitMs = parseWait(body);
  const claim: Claim = {
    id: randomId(),
    locks: keys.map((key): LockSpec => ({ key, ...permitSpec })) as unknown as Claim["locks"],
    ttlMs: parseTtl(body, limits),
    tokenCount: 1,
    floor: 0n,
    wait: waitMs > 0,
    label: cleanLabel(optionalString(body, "label") ?? defaultLabel),
  };
  return { claim, waitMs };
}

/** How long a request waits, in milliseconds. @throws Problem */
export function parseWait(body: JsonBody): number {
  const waitMs = optionalDuration(body, "wait", 0, Number.MAX_SAFE_INTEGER) ?? MAX_WAIT_MS;
  return Math.min(waitMs, MAX_WAIT_MS);
}

/** Validates a key of a request. @throws Problem */
export function parseKey(value: unknown, field: string, limits: ServerLimits): string {
  let key: string;
  try {
    key = validateKey(value, field);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw invalidField(field, "malformed", error.message);
  }
  if (Buffer.byteLength(key) > limits.keyBytes) {
    throw invalidField(field, "range", `${field} must have at most ${limits.keyBytes} bytes of UTF-8`);
  }
  return key;
}

function parseKeys(body: JsonBody, limits: ServerLimits): readonly string[] {
  const rawKey = body.get("key");
  const rawKeys = body.get("keys");
  if (rawKey !== undefined && rawKeys !== undefined)
    throw invalidField("keys", "conflict", "give key or keys, not both");
  if (rawKeys === undefined) {
    if (rawKey === undefined) throw missingField("key");
    return [parseKey(rawKey, "key", limits)];
  }
  if (!Array.isArray(rawKeys)) throw invalidField("keys", "malformed", "keys must be an array of strings");
  if (rawKeys.length === 0 || rawKeys.length > limits.holds) {
    throw invalidField("keys", "range", `keys must have 1 to ${limits.holds} elements`);
  }
  const keys = new Set(rawKeys.map((key: unknown, index) => parseKey(key, `keys[${index}]`, limits)));
  // every client acquires keys in this order, which excludes deadlocks
  return [...keys].sort((a, b) => (a < b ? -1 : 1));
}

type PermitSpec = Omit<LockSpec, "key">;

function parsePermitSpec(body: JsonBody): PermitSpec {
  const limit = optionalInteger(body, "limit", 1, ALL_PERMITS - 1);
  const mode = optionalString(body, "mode") ?? (limit === undefined ? "exclusive" : "semaphore");
  if (mode !== "exclusive" && mode !== "shared" && mode !== "semaphore") {
    throw invalidField("mode", "malformed", 'mode must be "exclusive", "shared" or "semaphore"');
  }
  if (mode === "semaphore") {
    if (limit === undefined) throw missingField("limit");
    return { permits: optionalInteger(body, "permits", 1, limit) ?? 1, limit };
  }
  for (const field of ["limit", "permits"]) {
    if (body.has(field)) throw invalidField(field, "conflict", `${field} belongs to mode "semaphore"`);
  }
  return { permits: mode === "shared" ? 1 : ALL_PERMITS, limit: ALL_PERMITS };
}

function parseTtl(body: JsonBody, limits: ServerLimits): number {
  if (body.get("ttl") === "session") {
    const alternative = `use a duration (at most ${formatExactDuration(limits.ttlMs)}), and renew it if needed`;
    throw invalidField("ttl", "session", `HTTP has no sessions: ${alternative}`);
  }
  return optionalDuration(body, "ttl", MIN_TTL_MS, limits.ttlMs) ?? Math.min(DEFAULT_TTL_MS, limits.ttlMs);
}

function checkStoreTraits({ lease, manyKeys, permits }: Traits, keyCount: number, permitSpec: PermitSpec): void {
  if (!lease.claim)
    throw unsupportedProblem("this server's store ends locks with their session: they cannot be held over HTTP");
  if (keyCount > 1 && !manyKeys) throw unsupportedProblem("this server's store locks only one key at a time", "keys");
  const isExclusive = permitSpec.permits === ALL_PERMITS;
  if (permits === "any" || isExclusive) return;
  if (permits === "one") throw unsupportedProblem("this server's store supports only exclusive locks", "mode");
  if (permitSpec.limit !== ALL_PERMITS)
    throw unsupportedProblem("this server's store does not support semaphores", "mode");
}

function unsupportedProblem(message: string, field?: string): Problem {
  return new Problem("UNSUPPORTED", "store", message, field === undefined ? {} : { field });
}
