/** What a request wants to hold: the body of POST /v1/claims as a claim. */

import { MIN_TTL_MS } from "../../duration.ts";
import { newId } from "../../ids.ts";
import { checkedKey, checkedLabel } from "../../keys.ts";
import type { Claim, Hold, Traits } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { ServerLimits } from "../limits.ts";
import { boundText } from "../terms.ts";
import type { Body } from "./fields.ts";
import { countIn, durationIn, missing, textIn } from "./fields.ts";
import { invalid, Problem } from "./problem.ts";

/** The longest that a request waits; then it is answered that it does, and may be repeated. */
const MOST_WAIT_MS = 25_000;
const DEFAULT_TTL_MS = 30_000;

/** A claim to place, and how long the request waits for it; 0: it leaves no place. */
export interface Wanted {
  readonly claim: Claim;
  readonly waitMs: number;
}

/** @throws Problem naming the field that is wrong */
export function wantedFrom(body: Body, limits: ServerLimits, traits: Traits, from: string): Wanted {
  const keys = keysFrom(body, limits);
  const form = formFrom(body);
  checkTraits(traits, keys.length, form);
  const waitMs = waitFrom(body);
  const claim: Claim = {
    id: newId(),
    holds: keys.map((key): Hold => ({ key, ...form })) as unknown as Claim["holds"],
    ttlMs: ttlFrom(body, limits),
    tokens: 1,
    floor: 0n,
    wait: waitMs > 0,
    label: checkedLabel(textIn(body, "label") ?? from),
  };
  return { claim, waitMs };
}

/** How long a request waits, in milliseconds. @throws Problem */
export function waitFrom(body: Body): number {
  const waitMs = durationIn(body, "wait", 0, Number.MAX_SAFE_INTEGER) ?? MOST_WAIT_MS;
  return Math.min(waitMs, MOST_WAIT_MS);
}

/** A key that may be named in a request. @throws Problem */
export function keyFrom(value: unknown, field: string, limits: ServerLimits): string {
  let key: string;
  try {
    key = checkedKey(value, field);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw invalid(field, "malformed", error.message);
  }
  if (Buffer.byteLength(key) > limits.keyBytes) {
    throw invalid(field, "range", `${field} must have at most ${limits.keyBytes} bytes of UTF-8`);
  }
  return key;
}

function keysFrom(body: Body, limits: ServerLimits): readonly string[] {
  const one = body.get("key");
  const many = body.get("keys");
  if (one !== undefined && many !== undefined) throw invalid("keys", "conflict", "give key or keys, not both");
  if (many === undefined) {
    if (one === undefined) throw missing("key");
    return [keyFrom(one, "key", limits)];
  }
  if (!Array.isArray(many)) throw invalid("keys", "malformed", "keys must be an array of strings");
  if (many.length === 0 || many.length > limits.holds) {
    throw invalid("keys", "range", `keys must be 1 to ${limits.holds} of them`);
  }
  const keys = new Set(many.map((key: unknown, at) => keyFrom(key, `keys[${at}]`, limits)));
  // the order in which every client takes them, so that nobody waits in a circle
  return [...keys].sort((a, b) => (a < b ? -1 : 1));
}

type Form = Omit<Hold, "key">;

function formFrom(body: Body): Form {
  const limit = countIn(body, "limit", 1, ALL_PERMITS - 1);
  const mode = textIn(body, "mode") ?? (limit === undefined ? "exclusive" : "semaphore");
  if (mode !== "exclusive" && mode !== "shared" && mode !== "semaphore") {
    throw invalid("mode", "malformed", 'mode must be "exclusive", "shared" or "semaphore"');
  }
  if (mode === "semaphore") {
    if (limit === undefined) throw missing("limit");
    return { permits: countIn(body, "permits", 1, limit) ?? 1, limit };
  }
  for (const field of ["limit", "permits"]) {
    if (body.has(field)) throw invalid(field, "conflict", `${field} belongs to mode "semaphore"`);
  }
  return { permits: mode === "shared" ? 1 : ALL_PERMITS, limit: ALL_PERMITS };
}

function ttlFrom(body: Body, limits: ServerLimits): number {
  if (body.get("ttl") === "session") {
    const instead = `ask for a ttl (the longest is ${boundText(limits.ttlMs)}) and renew it, or not`;
    throw invalid("ttl", "session", `over HTTP there is no session that a lock could end with: ${instead}`);
  }
  return durationIn(body, "ttl", MIN_TTL_MS, limits.ttlMs) ?? Math.min(DEFAULT_TTL_MS, limits.ttlMs);
}

function checkTraits({ lease, manyKeys, permits }: Traits, keys: number, form: Form): void {
  if (!lease.claim) throw unsupported("locks of this server's store end with its session: none can be held over HTTP");
  if (keys > 1 && !manyKeys) throw unsupported("this server's store takes one key at a time", "keys");
  const isExclusive = form.permits === ALL_PERMITS;
  if (permits === "any" || isExclusive) return;
  if (permits === "one") throw unsupported("this server's store knows exclusive locks only", "mode");
  if (form.limit !== ALL_PERMITS) throw unsupported("this server's store knows no semaphores", "mode");
}

function unsupported(message: string, field?: string): Problem {
  return new Problem(501, "UNSUPPORTED", "store", message, field === undefined ? {} : { field });
}
