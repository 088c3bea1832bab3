/**
 * Token claims: a second key beside each locked key, on every member, from which the grant's token comes (decision
 * 0015). A claim with a majority of votes makes its token claim everywhere with one floor, ahead of every clock seen,
 * so that all members answer with that same token; it is the grant's token when a majority has given it. driver.ts
 * argues why tokens rise.
 */

import { createHash } from "node:crypto";
import type { Answer, Claim, ClaimView } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import { MAX_KEY_BYTES } from "../../util/keys.ts";

const TOKEN_KEY_SUFFIX = "#holdfast-token";
export const HASHED_TOKEN_KEY_PREFIX: string = `${TOKEN_KEY_SUFFIX}:`;

/**
 * The floor of a token claim is this far (microseconds) ahead of the highest clock, so that no clock has passed it on
 * arrival.
 */
export const CLOCK_LEAD = 1_000_000n;

/**
 * Its permits are shared, so that it is granted at once. It is kept and renewed beside the vote, so that the token can
 * be found again.
 */
export function createTokenClaim(claim: Claim, floor: bigint): Claim {
  const [{ key }] = claim.locks;
  return {
    id: toTokenClaimId(claim.id),
    locks: [{ key: toTokenKey(key), permits: 1, limit: ALL_PERMITS }],
    ttlMs: claim.ttlMs,
    tokenCount: claim.tokenCount,
    floor,
    wait: false,
    label: publicTag(claim.id),
  };
}

/**
 * The token claim for a member that has lost the first one. Its answer has a token of that member only; the grant's
 * token is in its label, which lists show.
 */
export function createReplacementTokenClaim(claim: Claim, token: bigint): Claim {
  const tokenClaim = createTokenClaim(claim, token);
  return { ...tokenClaim, id: toTokenClaimId(tokenClaim.id), label: `${tokenClaim.label} ${token}` };
}

/** The tag of the claim that a listed token claim belongs to. */
export function parseClaimTag({ label }: ClaimView): string {
  return label.split(" ")[0] as string;
}

/** Is this the key of token claims? It cannot be locked, and no list shows it. */
export function isTokenKey(key: string): boolean {
  return key.endsWith(TOKEN_KEY_SUFFIX) || key.startsWith(HASHED_TOKEN_KEY_PREFIX);
}

/**
 * Is this key too long for the suffix? The key of its token claims then begins with HASHED_TOKEN_KEY_PREFIX, not with
 * this key.
 */
export function hasHashedTokenKey(key: string): boolean {
  return Buffer.byteLength(key) + TOKEN_KEY_SUFFIX.length > MAX_KEY_BYTES;
}

/** A grant's first token, and how many tokens from there a majority has reserved. */
export interface TokenRun {
  readonly token: bigint;
  readonly tokenCount: number;
}

/** The token range that a majority has granted; null: there is none. */
export function findAgreedRun(answers: readonly Answer[], majority: number): TokenRun | null {
  return findSharedRun(
    answers.filter((answer) => answer.state === "held"),
    majority,
  );
}

/** The grants' tokens, from listed token claims, by the tag of the claim. */
export function findRunsByTag(views: readonly ClaimView[], majority: number): ReadonlyMap<string, TokenRun> {
  const runs = new Map<string, TokenRun[]>();
  for (const view of views) {
    const { answer, tokenCount } = view;
    if (answer.state !== "held") continue;
    const tag = parseClaimTag(view);
    const replacedToken = /^\S+ (\d+)$/.exec(view.label)?.[1];
    runs.set(tag, [
      ...(runs.get(tag) ?? []),
      replacedToken === undefined ? answer : { token: BigInt(replacedToken), tokenCount },
    ]);
  }
  const runByTag = new Map<string, TokenRun>();
  for (const [tag, sameTag] of runs) {
    const run = findSharedRun(sameTag, majority);
    if (run !== null) runByTag.set(tag, run);
  }
  return runByTag;
}

function findSharedRun(runs: readonly TokenRun[], majority: number): TokenRun | null {
  const countsByToken = new Map<bigint, number[]>();
  for (const { token, tokenCount } of runs) countsByToken.set(token, [...(countsByToken.get(token) ?? []), tokenCount]);
  for (const [token, counts] of countsByToken)
    if (counts.length >= majority) return { token, tokenCount: Math.min(...counts) };
  return null;
}

/** Derives the token claim's id from the claim's. Both are secrets; any client with the claim's id can derive it. */
function toTokenClaimId(id: string): string {
  const digest = createHash("sha256").update(`ticket ${id}`).digest();
  let text = "";
  for (let index = 0; index < 26; index++) text += "abcdefghijklmnopqrstuvwxyz234567"[(digest[index] as number) & 31];
  return text;
}

/** The key of the token claims of a key. */
export function toTokenKey(key: string): string {
  return hasHashedTokenKey(key)
    ? HASHED_TOKEN_KEY_PREFIX + createHash("sha256").update(key).digest("hex")
    : key + TOKEN_KEY_SUFFIX;
}
