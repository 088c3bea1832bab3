/** The texts of the state folder: each record with its checksum, so that damage is seen and a torn end is cut. */

import { createHash } from "node:crypto";
import type { Claim } from "../spi/driver.ts";
import type { JournalRecord, SavedClaim, SavedSession, SavedState } from "./disk.ts";
import { LAYOUT } from "./disk.ts";
import { StateError } from "./files.ts";

/** A line of the journal: checksum, blank, record. */
export function journalLine(record: JournalRecord): string {
  const text = JSON.stringify("put" in record ? { put: plain(record.put) } : record);
  return `${checksum(text)} ${text}\n`;
}

/**
 * The records of a journal. What was being written when the machine stopped is cut off: nobody was told of it.
 * @throws StateError if anything before the end is damaged
 */
export function journalRecords(text: string, path: string): JournalRecord[] {
  const lines = text.split("\n");
  // what follows the last line feed was being written
  lines.pop();
  return lines.map((line) => {
    const record = checked(line, path, JOURNAL_ADVICE) as { put: PlainClaim } | { drop: string };
    return "put" in record ? { put: rich(record.put) } : record;
  });
}

/** The whole text of a state file. */
export function stateText(state: SavedState): string {
  const { bound, longestMs, remote, strangers, clean } = state;
  const table = clean && { claims: clean.claims.map(plain), sessions: clean.sessions };
  const whole = { bound, longestMs, remote, strangers, clean: table };
  const text = JSON.stringify({ layout: LAYOUT, ...whole });
  return `${checksum(text)} ${text}\n`;
}

/** @throws StateError if it is damaged, or of another layout */
export function stateOf(text: string, path: string): SavedState {
  const { layout, clean, ...state } = checked(text.trimEnd(), path, STATE_ADVICE) as {
    layout: number;
    clean: { claims: PlainClaim[]; sessions: SavedSession[] } | null;
  } & Omit<SavedState, "clean">;
  if (layout !== LAYOUT) {
    const advice = layout > LAYOUT ? "run a newer holdfast" : "move it away once nothing is held";
    throw new StateError(`${path} has layout ${layout}, this version knows ${LAYOUT}: ${advice}`);
  }
  return { ...state, clean: clean && { claims: clean.claims.map(rich), sessions: clean.sessions } };
}

/** JSON has no bigint. */
type PlainClaim = Omit<SavedClaim, "claim"> & { readonly claim: Omit<Claim, "floor"> & { readonly floor: string } };

function plain(saved: SavedClaim): PlainClaim {
  return { ...saved, claim: { ...saved.claim, floor: String(saved.claim.floor) } };
}

function rich(saved: PlainClaim): SavedClaim {
  return { ...saved, claim: { ...saved.claim, floor: BigInt(saved.claim.floor) } };
}

function checksum(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

const STATE_ADVICE =
  "move it away; the next start then asks the clients what they hold, for a minute, before it grants anything";
const JOURNAL_ADVICE = "move it away once no lock that is detached, or has a lease over a minute, is held any more";

function checked(line: string, path: string, advice: string): unknown {
  const text = line.slice(17);
  if (line[16] !== " " || checksum(text) !== line.slice(0, 16)) throw new StateError(`${path} is damaged: ${advice}`);
  return JSON.parse(text);
}
