/** Validates requests, once, and converts them to claims of the SPI. */

import type { ReclaimItem } from "../../protocol/frames.ts";
import { decodeLockSpec, isCount, isDecimalString } from "../../protocol/frames.ts";
import { PROTOCOL_LIMITS, ProtocolError } from "../../protocol/handshake.ts";
import type { Claim, ClaimId, ListQuery, LockSpec } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { MAX_DURATION_MS, MIN_TTL_MS } from "../../util/duration.ts";
import { isId } from "../../util/ids.ts";
import { cleanLabel, validateKey } from "../../util/keys.ts";
import type { ServerLimits } from "../limits.ts";
import { formatExactDuration } from "../limits.ts";
import { RequestError } from "../request-error.ts";
import type { ReleaseRequest, RenewRequest, RevokeRequest } from "../session/backend.ts";

const PLAIN_LABEL = /^[\x20-\x7e]{0,256}$/;
/** Each target of a revocation is looked for among all holders of its key, in one step. */
const MAX_REVOCATIONS = 64;
const NO_OPTIONS: Readonly<Record<string, unknown>> = {};

/**
 * Decodes a claim: its id at `index`, followed by locks, ttl and options.
 * @throws ProtocolError; RequestError if it exceeds a limit
 */
export function decodeClaim(raw: readonly unknown[], index: number, label: string, limits: ServerLimits): Claim {
  const options = decodeOptions(raw[index + 3]);
  const { tokens, floor, wait, recall, successors } = options;
  if (tokens !== undefined && !(isCount(tokens) && tokens >= 1 && tokens <= PROTOCOL_LIMITS.tokens)) {
    throw malformed(`tokens must be from 1 to ${PROTOCOL_LIMITS.tokens}`);
  }
  if (floor !== undefined && !isDecimalString(floor)) throw malformed("floor must be a decimal string");
  if (wait !== undefined && typeof wait !== "boolean") throw malformed("wait must be a boolean");
  if (recall !== undefined && typeof recall !== "boolean") throw malformed("recall must be a boolean");
  if (successors !== undefined && typeof successors !== "boolean") throw malformed("successors must be a boolean");
  return {
    id: decodeId(raw[index]),
    locks: decodeLocks(raw[index + 1]),
    ttlMs: decodeTtl(raw[index + 2], limits),
    tokenCount: (tokens as number | undefined) ?? 1,
    floor: floor === undefined ? 0n : BigInt(floor),
    wait: wait !== false,
    label: options.label === undefined ? label : decodeLabel(options.label),
    ...(recall === true && { recall }),
    ...(successors === true && { successors }),
  };
}

function decodeId(raw: unknown): ClaimId {
  if (!isId(raw)) throw malformed("an id must be 26 characters of a-z and 2-7");
  return raw;
}

/** Cleans a label for display in a terminal: removes control characters and cuts it. */
export function decodeLabel(raw: unknown): string {
  if (typeof raw !== "string") throw malformed("label must be a string");
  return PLAIN_LABEL.test(raw) ? raw : cleanLabel(raw);
}

/** The number that identifies the reply. */
export function decodeCallNumber(raw: unknown): number {
  if (!isCount(raw)) throw malformed("a call's number must be a whole number");
  return raw;
}

export function decodeRenew(raw: unknown, rawCounts: unknown, label: string, limits: ServerLimits): RenewRequest[] {
  const items = decodeBatch(raw, "claims");
  const counts = rawCounts === undefined ? null : decodeTokenCounts(rawCounts, items.length);
  return items.map((item, index) => {
    const tokenCount = counts === null ? 0 : (counts[index] as number);
    if (!Array.isArray(item)) return { id: decodeId(item), claim: null, tokenCount };
    const claim = decodeClaim(item, 0, label, limits);
    return { id: claim.id, claim, tokenCount };
  });
}

/** How many tokens each claim should have in all; 0: as many as it has. */
function decodeTokenCounts(raw: unknown, length: number): readonly number[] {
  const counts = decodeArray(raw, "token counts");
  if (counts.length !== length || !counts.every((count) => isCount(count) && count <= PROTOCOL_LIMITS.tokens))
    throw malformed(`token counts must be one for each claim, from 0 to ${PROTOCOL_LIMITS.tokens}`);
  return counts as readonly number[];
}

export function decodeRelease(raw: unknown, limits: ServerLimits): ReleaseRequest[] {
  return decodeBatch(raw, "ids").map((item) => {
    if (!Array.isArray(item)) return { id: decodeId(item), unansweredTtl: undefined };
    return { id: decodeId(item[0]), unansweredTtl: decodeTtl(item[1], limits) };
  });
}

export function decodeIds(raw: unknown): ClaimId[] {
  return decodeBatch(raw, "ids").map(decodeId);
}

/** The remaining time that a detached lease gets; undefined: its full ttl. */
export function decodeRemainingMs(raw: unknown): number | undefined {
  if (raw === undefined) return undefined;
  if (isCount(raw) && raw >= 1 && raw <= MAX_DURATION_MS) return raw;
  throw malformed(`the remaining time of a lease must be milliseconds from 1 to ${MAX_DURATION_MS}`);
}

export function decodeRevoke(raw: unknown): RevokeRequest[] {
  const items = decodeArray(raw, "targets");
  if (items.length > MAX_REVOCATIONS) throw limitExceeded(`at most ${MAX_REVOCATIONS} targets in a frame`);
  return items.map((item) => {
    const [key, token, now, reason = ""] = decodeArray(item, "a target");
    if (!isDecimalString(token)) throw malformed("a token must be a decimal string");
    return { key: decodeKey(key), token: BigInt(token), now: now === true, reason: decodeLabel(reason) };
  });
}

export function decodeReclaim(raw: unknown, label: string, limits: ServerLimits): ReclaimItem[] {
  return decodeBatch(raw, "claims").map((item) => {
    const [rawClaim, rawState] = decodeArray(item, "a claim");
    const claim = decodeClaim(decodeArray(rawClaim, "a claim's terms"), 0, label, limits);
    const [state, a, b, c] = decodeArray(rawState, "a claim's state");
    if (state === "held" && isDecimalString(a) && isCount(b) && b >= 1 && b <= PROTOCOL_LIMITS.tokens && isCount(c)) {
      return { claim, lastState: { state, token: BigInt(a), tokenCount: b, remainingMs: c } };
    }
    if (state === "waiting" && isCount(a)) return { claim, lastState: { state, arrival: a } };
    throw malformed('a claim\'s state must be ["held", token, tokens, remainingMs] or ["waiting", arrival]');
  });
}

export function decodeListQuery(
  filter: unknown,
  max: unknown,
  cursor: unknown,
): [ListQuery, number, string | undefined] {
  if (!isCount(max)) throw malformed("max must be a whole number");
  if (cursor !== undefined && typeof cursor !== "string") throw malformed("after must be a tag");
  return [decodeFilter(filter), Math.min(max, PROTOCOL_LIMITS.pageSize), cursor];
}

function decodeFilter(raw: unknown): ListQuery {
  const { prefix, key } = (typeof raw === "object" && raw !== null ? raw : {}) as Record<string, unknown>;
  if (typeof prefix === "string" && key === undefined) return { prefix };
  if (typeof key === "string" && prefix === undefined) return { key };
  throw malformed("a list has a filter: an object with prefix or key, a string");
}

function decodeLocks(raw: unknown): readonly [LockSpec, ...LockSpec[]] {
  const items = decodeArray(raw, "locks");
  if (items.length === 0 || items.length > PROTOCOL_LIMITS.locks)
    throw malformed(`a claim has 1 to ${PROTOCOL_LIMITS.locks} locks`);
  const locks = items.map(decodeLockSpec);
  let previousKey = "";
  for (const { key, permits, limit } of locks) {
    decodeKey(key);
    if (key <= previousKey) throw malformed("locks must be sorted by key, no key twice");
    if (!(permits >= 1 && permits <= limit && limit <= ALL_PERMITS)) {
      throw malformed("permits must be from 1 to limit, limit at most 2^30");
    }
    previousKey = key;
  }
  return locks as unknown as readonly [LockSpec, ...LockSpec[]];
}

function decodeKey(raw: unknown): string {
  try {
    return validateKey(raw);
  } catch (error) {
    throw error instanceof TypeError ? malformed(error.message) : error;
  }
}

function decodeTtl(raw: unknown, limits: ServerLimits): number | "session" {
  if (raw === "session") return raw;
  if (!isCount(raw) || raw < MIN_TTL_MS || raw > MAX_DURATION_MS) {
    throw malformed(`ttl must be "session" or milliseconds from ${MIN_TTL_MS} to ${MAX_DURATION_MS}`);
  }
  if (raw > limits.ttlMs) throw limitExceeded(`the longest lease is ${formatExactDuration(limits.ttlMs)}`);
  return raw;
}

function decodeOptions(raw: unknown): Readonly<Record<string, unknown>> {
  if (raw === undefined || raw === null) return NO_OPTIONS;
  if (typeof raw !== "object" || Array.isArray(raw)) throw malformed("options must be an object");
  return raw as Readonly<Record<string, unknown>>;
}

function decodeArray(raw: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(raw)) throw malformed(`${name} must be an array`);
  return raw;
}

/** Limits the number of items in a frame. */
function decodeBatch(raw: unknown, name: string): readonly unknown[] {
  const items = decodeArray(raw, name);
  const { itemsPerFrame } = PROTOCOL_LIMITS;
  if (items.length > itemsPerFrame) throw limitExceeded(`at most ${itemsPerFrame} ${name} in a frame`);
  return items;
}

function limitExceeded(message: string): RequestError {
  return new RequestError("LIMIT", message);
}

function malformed(message: string): ProtocolError {
  return new ProtocolError("PROTOCOL", message);
}

/** true or false. */
export function decodeSwitch(raw: unknown): boolean {
  if (typeof raw !== "boolean") throw malformed("a switch must be true or false");
  return raw;
}
