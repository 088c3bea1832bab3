/** The texts of the state folder: what is saved as JSON, and back; each file with what shows that it is whole. */

import type { StateName } from "../protocol/hello.ts";
import type { Claim } from "../spi/driver.ts";
import { chained, checksum } from "./chain.ts";
import type { JournalRecord, SavedClaim, SavedSession, SavedState } from "./disk.ts";
import { LAYOUT } from "./disk.ts";
import { StateError } from "./files.ts";

/** A record of the journal. */
export function recordText(record: JournalRecord): string {
  return JSON.stringify("put" in record ? { put: plain(record.put) } : record);
}

/** What recordText() made. */
export function recordOf(text: string): JournalRecord {
  const record = JSON.parse(text) as { put: PlainClaim } | { drop: string };
  return "put" in record ? { put: rich(record.put) } : record;
}

/**
 * The records of a journal. What was being written when the machine stopped is cut off: nobody was told of it.
 * @throws StateError if it is damaged, cut short, or of another start than the state
 */
export function journalRecords(whole: string | null, path: string, state: StateName | null): readonly JournalRecord[] {
  if (whole === null) throw new StateError(`${path} is missing: ${JOURNAL_ADVICE}`);
  const journal = chained("journal", whole);
  if (journal === null) throw new StateError(`${path} is damaged: ${JOURNAL_ADVICE}`);
  if (state !== null && !follows(journal.epoch, state)) {
    throw new StateError(`${path} does not belong to the state beside it, but to another start: ${JOURNAL_ADVICE}`);
  }
  return journal.lines.map(recordOf);
}

/** A start writes the journal before the state: it may have ended in between. */
function follows({ id, generation }: StateName, of: StateName): boolean {
  return id === of.id && (generation === of.generation || generation === of.generation + 1);
}

/** A change of the list of sessions. */
export type SessionRecord = SavedSession | { readonly gone: string };

/**
 * The sessions that may hold something. Null: the list is missing, damaged, cut short or of another start, so that
 * others may hold something, too.
 */
export function sessionsOf(whole: string | null, state: StateName): readonly SavedSession[] | null {
  const list = whole === null ? null : chained("sessions", whole);
  if (list === null || list.epoch.id !== state.id || list.epoch.generation !== state.generation) return null;
  const sessions = new Map<string, SavedSession>();
  for (const line of list.lines) {
    const record = JSON.parse(line) as SessionRecord;
    if ("gone" in record) sessions.delete(record.gone);
    else sessions.set(record.id, record);
  }
  return [...sessions.values()];
}

/** The whole text of a state file. boot: names the time since the machine was started; null: the system does not say. */
export function stateText(saved: SavedState, boot: string | null): string {
  const { clean, ...rest } = saved;
  const table = clean && { ...clean, claims: clean.claims.map(plain) };
  const text = JSON.stringify({ layout: LAYOUT, boot, ...rest, clean: table });
  return `${checksum(text)} ${text}\n`;
}

/** What a state file says. @throws StateError if it is damaged, or of another layout */
export function stateOf(whole: string, path: string): { readonly saved: SavedState; readonly boot: string | null } {
  const [line = "", ...more] = whole.split("\n");
  const text = line.slice(17);
  if (line !== `${checksum(text)} ${text}` || more.join("") !== "") {
    throw new StateError(`${path} is damaged: ${STATE_ADVICE}`);
  }
  const { layout, boot, clean, ...rest } = JSON.parse(text) as {
    layout: number;
    boot: string | null;
    clean: (Omit<NonNullable<SavedState["clean"]>, "claims"> & { claims: PlainClaim[] }) | null;
  } & Omit<SavedState, "clean">;
  if (layout !== LAYOUT) {
    const advice = layout > LAYOUT ? "run a newer holdfast" : "move its folder away once nothing is held";
    throw new StateError(`${path} has layout ${layout}, this version knows ${LAYOUT}: ${advice}`);
  }
  return { saved: { ...rest, clean: clean && { ...clean, claims: clean.claims.map(rich) } }, boot };
}

/** JSON has no bigint. */
type PlainClaim = Omit<SavedClaim, "claim"> & { readonly claim: Omit<Claim, "floor"> & { readonly floor: string } };

function plain(saved: SavedClaim): PlainClaim {
  return { ...saved, claim: { ...saved.claim, floor: String(saved.claim.floor) } };
}

function rich(saved: PlainClaim): SavedClaim {
  return { ...saved, claim: { ...saved.claim, floor: BigInt(saved.claim.floor) } };
}

const RECOVERY = "the next start then asks the clients what they hold, for a minute, before it grants anything";
const STATE_ADVICE = `move it away; ${RECOVERY}`;
const JOURNAL_ADVICE = `once no lock that is detached, or has a lease over a minute, is held any more, move it and "state" away; ${RECOVERY}`;
