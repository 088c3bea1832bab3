/**
 * Where tokens come from: the key of a ticket beside each locked key, on every member. Who has a majority of the votes
 * claims the ticket everywhere with one floor, ahead of every clock seen, so that all members answer with that very
 * token; it is the grant's token when a majority has given it. See driver.ts for why that rises.
 */

import { createHash } from "node:crypto";
import { tagOf } from "../../ids.ts";
import { MAX_KEY_BYTES } from "../../keys.ts";
import type { Answer, Claim, ClaimView } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";

const SUFFIX = "#holdfast-token";
export const FAR_TICKETS: string = `${SUFFIX}:`;

/** Tokens are asked for so far (microseconds) ahead of the highest clock, so that no clock is past them on arrival. */
export const LEAD = 1_000_000n;

/** Shared by all, so that it is granted at once; kept and renewed beside the vote, so that the token can be found again. */
export function ticketOf(claim: Claim, floor: bigint): Claim {
  const [{ key }] = claim.holds;
  return {
    id: ticketId(claim.id),
    holds: [{ key: ticketKey(key), permits: 1, limit: ALL_PERMITS }],
    ttlMs: claim.ttlMs,
    tokens: claim.tokens,
    floor,
    wait: false,
    label: tagOf(claim.id),
  };
}

/** Is this the key of a ticket, which nobody may lock and no list shows? */
export function isTicketKey(key: string): boolean {
  return key.endsWith(SUFFIX) || key.startsWith(FAR_TICKETS);
}

/** Does this key leave no room for the suffix? Its ticket's key does not begin with it then, but with FAR_TICKETS. */
export function hasFarTicket(key: string): boolean {
  return Buffer.byteLength(key) + SUFFIX.length > MAX_KEY_BYTES;
}

/** The token that a majority has given, with how many of its run all of them have set aside; null: there is none. */
export function agreed(answers: readonly Answer[], majority: number): { token: bigint; tokens: number } | null {
  const runs = new Map<bigint, number[]>();
  for (const answer of answers) {
    if (answer.state !== "held") continue;
    const same = runs.get(answer.token) ?? [];
    same.push(answer.tokens);
    runs.set(answer.token, same);
  }
  for (const [token, sizes] of runs) if (sizes.length >= majority) return { token, tokens: Math.min(...sizes) };
  return null;
}

/** Of tickets as they are listed: the grant's token by the tag of the claim that it belongs to. */
export function tokensByTag(views: readonly ClaimView[], majority: number): ReadonlyMap<string, bigint> {
  const answers = new Map<string, Answer[]>();
  for (const { label, answer } of views) answers.set(label, [...(answers.get(label) ?? []), answer]);
  const tokens = new Map<string, bigint>();
  for (const [tag, given] of answers) {
    const found = agreed(given, majority);
    if (found !== null) tokens.set(tag, found.token);
  }
  return tokens;
}

/** As secret as the claim's, and found from it by whoever has that. */
function ticketId(id: string): string {
  const digest = createHash("sha256").update(`ticket ${id}`).digest();
  let text = "";
  for (let at = 0; at < 26; at++) text += "abcdefghijklmnopqrstuvwxyz234567"[(digest[at] as number) & 31];
  return text;
}

function ticketKey(key: string): string {
  return hasFarTicket(key) ? FAR_TICKETS + createHash("sha256").update(key).digest("hex") : key + SUFFIX;
}
