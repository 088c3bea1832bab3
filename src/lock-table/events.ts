/** The events of the claims in a lock table. */

import type { ClaimRecord } from "./key-queue.ts";

/**
 * What happened to a claim. An end with a token is that of a held claim, one without a token that of a waiting claim.
 *   waiting    it was queued
 *   granted    it is held
 *   reclaimed  it is held again: its client has reported it after a restart
 *   released   its holder released it
 *   withdrawn  its client withdrew it while it waited, or handed a lock on to it without a call (successors.ts)
 *   expired    its lease expired
 *   disconnected  its client has disconnected
 *   revoked    it was revoked; it keeps its entry until another end
 *   maxHoldExceeded  it was revoked by the server, since it was held longer than maxHold
 *   removed    it was revoked and removed at once; or it waited, and its account may no longer acquire its keys
 */
export type EventKind =
  | "waiting"
  | "granted"
  | "reclaimed"
  | "released"
  | "withdrawn"
  | "expired"
  | "disconnected"
  | "revoked"
  | "maxHoldExceeded"
  | "removed";

/** Called in the middle of a change of the table: it may record the event, but must not call the table. */
export interface Observer<Owner = unknown> {
  /** `now` is the table's, in milliseconds. */
  onEvent(kind: EventKind, record: ClaimRecord<Owner>, now: number): void;
}

/** The observer of a table without one. */
export const NO_OBSERVER: Observer = { onEvent: () => undefined };
