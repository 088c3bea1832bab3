/** Where an entry of the table stands, as its client is told. */

import type { Answer, ClaimId } from "../spi/driver.ts";
import type { Entry } from "./entry.ts";
import type { Seat } from "./seats.ts";

/** How many places ahead are looked at to say when a waiting claim should ask again. */
const RECHECK_LOOKS = 32;

/** A waiting claim that has become held, or one that was revoked: to be announced to its owner. */
export interface Grant {
  readonly id: ClaimId;
  readonly owner: unknown;
  readonly answer: Answer;
}

/** What the table answers about this entry now. `sessionMs`: what "session" claims are told as their lease. */
export function standingOf(entry: Entry, now: number, sessionMs: number): Answer {
  const { ttlMs: asked } = entry.claim;
  // a list is made a little at a time: it may come to an entry whose end the table has not noticed yet
  const ttlMs = asked === "session" ? sessionMs : Math.max(entry.expiresAt - now, 0);
  if (entry.held) return { state: "held", token: BigInt(entry.token), tokens: entry.tokens, ttlMs };
  return { state: "waiting", ttlMs, recheckMs: recheckMs(entry, now, asked === "session" ? sessionMs : asked) };
}

/** When a place ahead may run out: the soonest of the nearest ones, at most a ttl from now. */
function recheckMs(entry: Entry, now: number, ttlMs: number): number {
  let soonest = now + ttlMs;
  let seat = (entry.seats.at(-1) as Seat).line.seats.first;
  for (let looks = 0; seat !== null && seat.entry !== entry && looks < RECHECK_LOOKS; looks++) {
    soonest = Math.min(soonest, seat.entry.expiresAt);
    seat = seat.next;
  }
  return Math.max(soonest - now, 1);
}
