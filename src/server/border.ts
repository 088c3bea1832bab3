/** What comes in is checked here, once, and is a claim of the SPI behind it. */

import { MAX_DURATION_MS, MIN_TTL_MS } from "../duration.ts";
import { isId } from "../ids.ts";
import { checkedKey, checkedLabel } from "../keys.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import { decodeHold, isCount, isDecimal } from "../protocol/frames.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { Claim, ClaimId, Hold, ListFilter } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Leave, Renewal, Revocation } from "./backend.ts";
import { Refusal } from "./backend.ts";
import type { ServerLimits } from "./limits.ts";
import { boundText } from "./terms.ts";

const PLAIN_LABEL = /^[\x20-\x7e]{0,256}$/;
const NO_OPTIONS: Readonly<Record<string, unknown>> = {};

/** A claim whose id stands at `at`, followed by holds, ttl and options. @throws ProtocolError; Refusal for what is too much */
export function claimFrom(raw: readonly unknown[], at: number, label: string, limits: ServerLimits): Claim {
  const options = optionsFrom(raw[at + 3]);
  const { tokens, floor, wait } = options;
  if (tokens !== undefined && !(isCount(tokens) && tokens >= 1 && tokens <= limits.tokens)) {
    throw malformed(`tokens must be from 1 to ${limits.tokens}`);
  }
  if (floor !== undefined && !isDecimal(floor)) throw malformed("floor must be a decimal string");
  if (wait !== undefined && typeof wait !== "boolean") throw malformed("wait must be a boolean");
  return {
    id: idFrom(raw[at]),
    holds: holdsFrom(raw[at + 1], limits),
    ttlMs: ttlFrom(raw[at + 2], limits),
    tokens: (tokens as number | undefined) ?? 1,
    floor: floor === undefined ? 0n : BigInt(floor),
    wait: wait !== false,
    label: options.label === undefined ? label : labelFrom(options.label),
  };
}

function idFrom(raw: unknown): ClaimId {
  if (!isId(raw)) throw malformed("an id must be 26 characters of a-z and 2-7");
  return raw;
}

/** A label as people may see it in a terminal: no control characters, not too long. */
export function labelFrom(raw: unknown): string {
  if (typeof raw !== "string") throw malformed("label must be a string");
  return PLAIN_LABEL.test(raw) ? raw : checkedLabel(raw);
}

/** The number by which the reply is known. */
export function numberFrom(raw: unknown): number {
  if (!isCount(raw)) throw malformed("a call's number must be a whole number");
  return raw;
}

export function renewalsFrom(raw: unknown, label: string, limits: ServerLimits): Renewal[] {
  return batchFrom(raw, "claims", limits).map((item) => {
    if (!Array.isArray(item)) return { id: idFrom(item), claim: null };
    const claim = claimFrom(item, 0, label, limits);
    return { id: claim.id, claim };
  });
}

export function leavesFrom(raw: unknown, limits: ServerLimits): Leave[] {
  return batchFrom(raw, "ids", limits).map((item) => {
    if (!Array.isArray(item)) return { id: idFrom(item), unanswered: undefined };
    return { id: idFrom(item[0]), unanswered: ttlFrom(item[1], limits) };
  });
}

export function idsFrom(raw: unknown, limits: ServerLimits): ClaimId[] {
  return batchFrom(raw, "ids", limits).map(idFrom);
}

/** What a detached lease is to have left; undefined: all of it. */
export function leftFrom(raw: unknown): number | undefined {
  if (raw === undefined) return undefined;
  if (isCount(raw) && raw >= 1 && raw <= MAX_DURATION_MS) return raw;
  throw malformed(`what a lease has left must be milliseconds from 1 to ${MAX_DURATION_MS}`);
}

export function revocationsFrom(raw: unknown, limits: ServerLimits): Revocation[] {
  const items = arrayFrom(raw, "targets");
  // each looks through the holders of its key
  if (items.length > limits.revocations) throw tooMuch(`at most ${limits.revocations} targets in a frame`);
  return items.map((item) => {
    const [key, token, now, reason = ""] = arrayFrom(item, "a target");
    if (!isDecimal(token)) throw malformed("a token must be a decimal string");
    return { key: keyFrom(key), token: BigInt(token), now: now === true, reason: labelFrom(reason) };
  });
}

export function reclaimedFrom(raw: unknown, label: string, limits: ServerLimits): Reclaimed[] {
  return batchFrom(raw, "claims", limits).map((item) => {
    const [terms, was] = arrayFrom(item, "a claim");
    const claim = claimFrom(arrayFrom(terms, "a claim's terms"), 0, label, limits);
    const [state, a, b, c] = arrayFrom(was, "a claim's state");
    if (state === "held" && isDecimal(a) && isCount(b) && b >= 1 && b <= limits.tokens && isCount(c)) {
      return { claim, was: { state, token: BigInt(a), tokens: b, leftMs: c } };
    }
    if (state === "waiting" && isCount(a)) return { claim, was: { state, arrival: a } };
    throw malformed('a claim\'s state must be ["held", token, tokens, leftMs] or ["waiting", arrival]');
  });
}

export function pageFrom(
  filter: unknown,
  max: unknown,
  after: unknown,
  limits: ServerLimits,
): [ListFilter, number, string | undefined] {
  if (!isCount(max)) throw malformed("max must be a whole number");
  if (after !== undefined && typeof after !== "string") throw malformed("after must be a tag");
  return [filterFrom(filter), Math.min(max, limits.page), after];
}

function filterFrom(raw: unknown): ListFilter {
  const { prefix, key } = (typeof raw === "object" && raw !== null ? raw : {}) as Record<string, unknown>;
  if (typeof prefix === "string" && key === undefined) return { prefix };
  if (typeof key === "string" && prefix === undefined) return { key };
  throw malformed("a list has a filter: an object with prefix or key, a string");
}

function holdsFrom(raw: unknown, limits: ServerLimits): readonly [Hold, ...Hold[]] {
  const items = arrayFrom(raw, "holds");
  if (items.length === 0 || items.length > limits.holds) throw malformed(`a claim has 1 to ${limits.holds} holds`);
  const holds = items.map(decodeHold);
  let before = "";
  for (const { key, permits, limit } of holds) {
    keyFrom(key);
    if (key <= before) throw malformed("holds must be sorted by key, no key twice");
    if (!(permits >= 1 && permits <= limit && limit <= ALL_PERMITS)) {
      throw malformed("permits must be from 1 to limit, limit at most 2^30");
    }
    before = key;
  }
  return holds as unknown as readonly [Hold, ...Hold[]];
}

function keyFrom(raw: unknown): string {
  try {
    return checkedKey(raw);
  } catch (error) {
    throw error instanceof TypeError ? malformed(error.message) : error;
  }
}

function ttlFrom(raw: unknown, limits: ServerLimits): number | "session" {
  if (raw === "session") return raw;
  if (!isCount(raw) || raw < MIN_TTL_MS || raw > MAX_DURATION_MS) {
    throw malformed(`ttl must be "session" or milliseconds from ${MIN_TTL_MS} to ${MAX_DURATION_MS}`);
  }
  if (raw > limits.ttlMs) throw tooMuch(`no lease over ${boundText(limits.ttlMs)}`);
  return raw;
}

function optionsFrom(raw: unknown): Readonly<Record<string, unknown>> {
  if (raw === undefined || raw === null) return NO_OPTIONS;
  if (typeof raw !== "object" || Array.isArray(raw)) throw malformed("options must be an object");
  return raw as Readonly<Record<string, unknown>>;
}

function arrayFrom(raw: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(raw)) throw malformed(`${what} must be an array`);
  return raw;
}

/** Not more of them than one frame may have. */
function batchFrom(raw: unknown, what: string, limits: ServerLimits): readonly unknown[] {
  const items = arrayFrom(raw, what);
  if (items.length > limits.batch) throw tooMuch(`at most ${limits.batch} ${what} in a frame`);
  return items;
}

function tooMuch(message: string): Refusal {
  return new Refusal("LIMIT", message);
}

function malformed(message: string): ProtocolError {
  return new ProtocolError("PROTOCOL", message);
}
