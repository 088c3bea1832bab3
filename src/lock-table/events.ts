/** What the owner of a lock table can be told of its claims, as it happens. */

import type { ClaimRecord } from "./claim-record.ts";

/**
 * What became of a claim. An ending with a token was a hold's, one without a waiting place's.
 *   waiting    it has a place in line
 *   granted    it is held
 *   reclaimed  it is held again, as its client says after a restart
 *   released   its holder gave it back
 *   left       it gave up its place
 *   expired    its time ran out
 *   gone       its client has gone
 *   revoked    its holder was asked to go; it keeps its place until another ending
 *   outstayed  as revoked, by the server: it was held for longer than it may be
 *   removed    it was taken away at once
 */
export type EventKind =
  | "waiting"
  | "granted"
  | "reclaimed"
  | "released"
  | "left"
  | "expired"
  | "gone"
  | "revoked"
  | "outstayed"
  | "removed";

/** Is told in the midst of a change of the table: it may note what it sees, but ask nothing of the table. */
export interface Observer {
  /** `now` is the table's, in milliseconds. */
  onEvent(what: EventKind, record: ClaimRecord, now: number): void;
}

/** For a table that nobody watches. */
export const NO_OBSERVER: Observer = { onEvent: () => undefined };
