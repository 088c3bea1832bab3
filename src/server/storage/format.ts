/** Encodes and decodes the files of the state directory. Each file can show that it is complete. */

import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Claim } from "../../spi/driver.ts";
import { decodeCheckedLine, encodeCheckedLine } from "../../util/checksum.ts";
import { decodeChain } from "./checksum-chain.ts";
import { StateError } from "./private-files.ts";
import type { JournalRecord, SavedClaim, SavedSession, SavedState } from "./storage.ts";
import { FORMAT_VERSION } from "./storage.ts";

/** A record of the journal. */
export function encodeRecord(record: JournalRecord): string {
  return JSON.stringify("put" in record ? { put: toJson(record.put) } : record);
}

/** The inverse of encodeRecord(). */
export function decodeRecord(text: string): JournalRecord {
  const record = JSON.parse(text) as { put: JsonClaim } | { drop: string };
  return "put" in record ? { put: fromJson(record.put) } : record;
}

/**
 * Decodes the records of a journal, without an incomplete one at the end: no client had an answer that relied on it.
 * @throws StateError if the journal is damaged, truncated, or belongs to another start than the state
 */
export function decodeJournal(text: string | null, path: string, state: StateEpoch | null): readonly JournalRecord[] {
  if (text === null) throw new StateError(`${path} is missing: ${JOURNAL_ADVICE}`);
  const journal = decodeChain("journal", text);
  if (journal === null) throw new StateError(`${path} is damaged: ${JOURNAL_ADVICE}`);
  if (state !== null && !belongsTo(journal.epoch, state)) {
    throw new StateError(
      `${path} does not belong to the state beside it, but to another run of the server: ${JOURNAL_ADVICE}`,
    );
  }
  return journal.lines.map(decodeRecord);
}

/** A start writes the journal before the state and may have ended in between. */
function belongsTo({ id, generation }: StateEpoch, state: StateEpoch): boolean {
  return id === state.id && (generation === state.generation || generation === state.generation + 1);
}

/** A change to the list of sessions. */
export type SessionRecord = SavedSession | { readonly gone: string };

/**
 * Decodes the sessions that may be holders. Null: the list is missing, damaged, truncated or of another start, so there
 * may be other holders.
 */
export function decodeSessions(text: string | null, state: StateEpoch): readonly SavedSession[] | null {
  const list = text === null ? null : decodeChain("sessions", text);
  if (list === null || list.epoch.id !== state.id || list.epoch.generation !== state.generation) return null;
  const sessions = new Map<string, SavedSession>();
  for (const line of list.lines) {
    const record = JSON.parse(line) as SessionRecord;
    if ("gone" in record) sessions.delete(record.gone);
    else sessions.set(record.id, record);
  }
  return [...sessions.values()];
}

/**
 * The complete text of a state file. boot: identifies the time since the machine was started; null: the system does not
 * tell.
 */
export function encodeState(saved: SavedState, boot: string | null): string {
  const { clean, ...rest } = saved;
  const table = clean && { ...clean, claims: clean.claims.map(toJson) };
  return encodeCheckedLine(JSON.stringify({ layout: FORMAT_VERSION, boot, ...rest, clean: table }));
}

/** The contents of a state file. @throws StateError if it is damaged, or of another layout */
export function decodeState(
  fileText: string,
  path: string,
): { readonly saved: SavedState; readonly boot: string | null } {
  const [line = "", ...otherLines] = fileText.split("\n");
  const text = decodeCheckedLine(line);
  if (text === null || otherLines.join("") !== "") {
    throw new StateError(`${path} is damaged: ${STATE_ADVICE}`);
  }
  const { layout, boot, clean, ...rest } = JSON.parse(text) as {
    layout: number;
    boot: string | null;
    clean: (Omit<NonNullable<SavedState["clean"]>, "claims"> & { claims: JsonClaim[] }) | null;
  } & Omit<SavedState, "clean">;
  if (layout !== FORMAT_VERSION) {
    const advice = layout > FORMAT_VERSION ? "run a newer holdfast" : "move its directory away when no lock is held";
    throw new StateError(`${path} has layout ${layout}, but this version supports ${FORMAT_VERSION}: ${advice}`);
  }
  return { saved: { ...rest, clean: clean && { ...clean, claims: clean.claims.map(fromJson) } }, boot };
}

/**
 * A saved claim in the files. They have names of their own for some members of `Claim`, in this order, so that a file does
 * not depend on the names in the code. JSON has no bigint.
 */
type JsonClaim = Omit<SavedClaim, "claim"> & {
  readonly claim: Pick<Claim, "id" | "ttlMs" | "wait" | "label"> & {
    /** Default: false, as saved by a version that does not recall. */
    readonly recall?: true;
    readonly holds: Claim["locks"];
    readonly tokens: number;
    readonly floor: string;
  };
};

function toJson(saved: SavedClaim): JsonClaim {
  const { id, locks, ttlMs, tokenCount, floor, wait, label, recall } = saved.claim;
  const options = { wait, label, ...(recall === true && { recall }) };
  return { ...saved, claim: { id, holds: locks, ttlMs, tokens: tokenCount, floor: String(floor), ...options } };
}

function fromJson(saved: JsonClaim): SavedClaim {
  const { id, holds, ttlMs, tokens, floor, wait, label, recall } = saved.claim;
  const options = { wait, label, ...(recall === true && { recall }) };
  return { ...saved, claim: { id, locks: holds, ttlMs, tokenCount: tokens, floor: BigInt(floor), ...options } };
}

const RECOVERY_ADVICE = "the next start then begins with a recovery of a minute, in which nothing new is granted";
const STATE_ADVICE = `move it away; ${RECOVERY_ADVICE}`;
const JOURNAL_ADVICE = `when no lock is held that is detached or has a lease longer than a minute, move it and "state" away; ${RECOVERY_ADVICE}`;
