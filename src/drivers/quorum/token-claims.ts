/**
 * Where tokens come from: the key of a ticket beside each locked key, on every member. Who has a majority of the votes
 * claims the ticket everywhere with one floor, ahead of every clock seen, so that all members answer with that very
 * token; it is the grant's token when a majority has given it. See driver.ts for why that rises.
 */

import { createHash } from "node:crypto";
import type { Answer, Claim, ClaimView } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import { MAX_KEY_BYTES } from "../../util/keys.ts";

const TOKEN_KEY_SUFFIX = "#holdfast-token";
export const HASHED_TOKEN_KEY_PREFIX: string = `${TOKEN_KEY_SUFFIX}:`;

/** Tokens are asked for so far (microseconds) ahead of the highest clock, so that no clock is past them on arrival. */
export const CLOCK_LEAD = 1_000_000n;

/** Shared by all, so that it is granted at once; kept and renewed beside the vote, so that the token can be found again. */
export function createTokenClaim(claim: Claim, floor: bigint): Claim {
  const [{ key }] = claim.holds;
  return {
    id: toTokenClaimId(claim.id),
    holds: [{ key: toTokenKey(key), permits: 1, limit: ALL_PERMITS }],
    ttlMs: claim.ttlMs,
    tokens: claim.tokens,
    floor,
    wait: false,
    label: publicTag(claim.id),
  };
}

/**
 * The one for a member that has lost it. It answers a token of that member alone; the grant's stands in its label, which
 * lists tell.
 */
export function createReplacementTokenClaim(claim: Claim, token: bigint): Claim {
  const tokenClaim = createTokenClaim(claim, token);
  return { ...tokenClaim, id: toTokenClaimId(tokenClaim.id), label: `${tokenClaim.label} ${token}` };
}

/** The tag of the claim that a listed ticket belongs to. */
export function parseClaimTag({ label }: ClaimView): string {
  return label.split(" ")[0] as string;
}

/** Is this the key of a ticket, which nobody may lock and no list shows? */
export function isTokenKey(key: string): boolean {
  return key.endsWith(TOKEN_KEY_SUFFIX) || key.startsWith(HASHED_TOKEN_KEY_PREFIX);
}

/** Does this key leave no room for the suffix? Its ticket's key does not begin with it then, but with HASHED_TOKEN_KEY_PREFIX. */
export function hasHashedTokenKey(key: string): boolean {
  return Buffer.byteLength(key) + TOKEN_KEY_SUFFIX.length > MAX_KEY_BYTES;
}

/** A grant's token, and how many of its run all of a majority have set aside. */
export interface TokenRun {
  readonly token: bigint;
  readonly tokens: number;
}

/** The token that a majority has given; null: there is none. */
export function findAgreedRun(answers: readonly Answer[], majority: number): TokenRun | null {
  return findSharedRun(
    answers.filter((answer) => answer.state === "held"),
    majority,
  );
}

/** Of tickets as they are listed: the grant's token by the tag of the claim that it belongs to. */
export function findRunsByTag(views: readonly ClaimView[], majority: number): ReadonlyMap<string, TokenRun> {
  const runs = new Map<string, TokenRun[]>();
  for (const view of views) {
    const { answer, tokens } = view;
    if (answer.state !== "held") continue;
    const tag = parseClaimTag(view);
    const replacedToken = /^\S+ (\d+)$/.exec(view.label)?.[1];
    runs.set(tag, [
      ...(runs.get(tag) ?? []),
      replacedToken === undefined ? answer : { token: BigInt(replacedToken), tokens },
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
  for (const { token, tokens } of runs) countsByToken.set(token, [...(countsByToken.get(token) ?? []), tokens]);
  for (const [token, counts] of countsByToken)
    if (counts.length >= majority) return { token, tokens: Math.min(...counts) };
  return null;
}

/** As secret as the claim's, and found from it by whoever has that. */
function toTokenClaimId(id: string): string {
  const digest = createHash("sha256").update(`ticket ${id}`).digest();
  let text = "";
  for (let index = 0; index < 26; index++) text += "abcdefghijklmnopqrstuvwxyz234567"[(digest[index] as number) & 31];
  return text;
}

/** Where the tickets of a key stand. */
export function toTokenKey(key: string): string {
  return hasHashedTokenKey(key)
    ? HASHED_TOKEN_KEY_PREFIX + createHash("sha256").update(key).digest("hex")
    : key + TOKEN_KEY_SUFFIX;
}
