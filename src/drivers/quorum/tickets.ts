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

/**
 * The one for a member that has lost it. It answers a token of that member alone; the grant's stands in its label, which
 * lists tell.
 */
export function ticketAgain(claim: Claim, token: bigint): Claim {
  const ticket = ticketOf(claim, token);
  return { ...ticket, id: ticketId(ticket.id), label: `${ticket.label} ${token}` };
}

/** The tag of the claim that a listed ticket belongs to. */
export function tagOfTicket({ label }: ClaimView): string {
  return label.split(" ")[0] as string;
}

/** Is this the key of a ticket, which nobody may lock and no list shows? */
export function isTicketKey(key: string): boolean {
  return key.endsWith(SUFFIX) || key.startsWith(FAR_TICKETS);
}

/** Does this key leave no room for the suffix? Its ticket's key does not begin with it then, but with FAR_TICKETS. */
export function hasFarTicket(key: string): boolean {
  return Buffer.byteLength(key) + SUFFIX.length > MAX_KEY_BYTES;
}

/** A grant's token, and how many of its run all of a majority have set aside. */
export interface Run {
  readonly token: bigint;
  readonly tokens: number;
}

/** The token that a majority has given; null: there is none. */
export function agreed(answers: readonly Answer[], majority: number): Run | null {
  return shared(
    answers.filter((answer) => answer.state === "held"),
    majority,
  );
}

/** Of tickets as they are listed: the grant's token by the tag of the claim that it belongs to. */
export function tokensByTag(views: readonly ClaimView[], majority: number): ReadonlyMap<string, Run> {
  const runs = new Map<string, Run[]>();
  for (const view of views) {
    const { answer, tokens } = view;
    if (answer.state !== "held") continue;
    const tag = tagOfTicket(view);
    const again = /^\S+ (\d+)$/.exec(view.label)?.[1];
    runs.set(tag, [...(runs.get(tag) ?? []), again === undefined ? answer : { token: BigInt(again), tokens }]);
  }
  const found = new Map<string, Run>();
  for (const [tag, same] of runs) {
    const run = shared(same, majority);
    if (run !== null) found.set(tag, run);
  }
  return found;
}

function shared(runs: readonly Run[], majority: number): Run | null {
  const sizes = new Map<bigint, number[]>();
  for (const { token, tokens } of runs) sizes.set(token, [...(sizes.get(token) ?? []), tokens]);
  for (const [token, same] of sizes) if (same.length >= majority) return { token, tokens: Math.min(...same) };
  return null;
}

/** As secret as the claim's, and found from it by whoever has that. */
function ticketId(id: string): string {
  const digest = createHash("sha256").update(`ticket ${id}`).digest();
  let text = "";
  for (let at = 0; at < 26; at++) text += "abcdefghijklmnopqrstuvwxyz234567"[(digest[at] as number) & 31];
  return text;
}

/** Where the tickets of a key stand. */
export function ticketKey(key: string): string {
  return hasFarTicket(key) ? FAR_TICKETS + createHash("sha256").update(key).digest("hex") : key + SUFFIX;
}
