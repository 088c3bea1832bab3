/**
 * Encodes and decodes the files of the state directory. Each file can show that it is complete.
 *
 * The files have words of their own, so that they do not change with the names in the code: the members of StateText,
 * ClaimText, SessionText and RecoveryText below. All other code has the words of storage.ts, which are those of the
 * glossary.
 */

import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Claim } from "../../spi/driver.ts";
import { decodeCheckedLine, encodeCheckedLine } from "../../util/checksum.ts";
import { decodeChain } from "./checksum-chain.ts";
import { StateError } from "./private-files.ts";
import type { JournalRecord, SavedClaim, SavedRecovery, SavedSession, SavedState } from "./storage.ts";
import { FORMAT_VERSION } from "./storage.ts";

/** A record of the journal. */
export function encodeRecord(record: JournalRecord): string {
  return JSON.stringify("put" in record ? { put: toClaimText(record.put) } : record);
}

/** The inverse of encodeRecord(). */
export function decodeRecord(text: string): JournalRecord {
  const record = JSON.parse(text) as { put: ClaimText } | { drop: string };
  return "put" in record ? { put: fromClaimText(record.put) } : record;
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

/** A line of the list of sessions. */
export function encodeSession(record: SessionRecord): string {
  return JSON.stringify("gone" in record ? record : toSessionText(record));
}

/**
 * Decodes the sessions that may be holders. Null: the list is missing, damaged, truncated or of another start, so there
 * may be other holders.
 */
export function decodeSessions(text: string | null, state: StateEpoch): readonly SavedSession[] | null {
  const list = text === null ? null : decodeChain("sessions", text);
  if (list === null || list.epoch.id !== state.id || list.epoch.generation !== state.generation) return null;
  const sessions = new Map<string, SavedSession>();
  for (const line of list.lines) {
    const record = JSON.parse(line) as SessionText | { readonly gone: string };
    if ("gone" in record) sessions.delete(record.gone);
    else sessions.set(record.id, fromSessionText(record));
  }
  return [...sessions.values()];
}

/**
 * The complete text of a state file. boot: identifies the time since the machine was started; null: the system does not
 * tell.
 */
export function encodeState(saved: SavedState, boot: string | null): string {
  const { id, generation, tokenCeiling, longestLeaseMs, remote, hasUnknownHolders, claimLimits, clean } = saved;
  const text: StateText = {
    layout: FORMAT_VERSION,
    boot,
    id,
    generation,
    bound: tokenCeiling,
    longestMs: longestLeaseMs,
    remote,
    strangers: hasUnknownHolders,
    ...(claimLimits && { room: claimLimits }),
    clean: clean && {
      claims: clean.claims.map(toClaimText),
      sessions: clean.sessions.map(toSessionText),
      recovery: clean.recovery && toRecoveryText(clean.recovery),
    },
  };
  return encodeCheckedLine(JSON.stringify(text));
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
  const { layout, boot, bound, longestMs, strangers, room, clean, ...rest } = JSON.parse(text) as StateText;
  if (layout !== FORMAT_VERSION) {
    const advice = layout > FORMAT_VERSION ? "run a newer holdfast" : "move its directory away when no lock is held";
    throw new StateError(`${path} has layout ${layout}, but this version supports ${FORMAT_VERSION}: ${advice}`);
  }
  const saved = {
    ...rest,
    tokenCeiling: bound,
    longestLeaseMs: longestMs,
    hasUnknownHolders: strangers,
    ...(room && { claimLimits: room }),
    clean: clean && {
      claims: clean.claims.map(fromClaimText),
      sessions: clean.sessions.map(fromSessionText),
      recovery: clean.recovery && fromRecoveryText(clean.recovery),
    },
  };
  return { saved, boot };
}

interface StateText extends Pick<SavedState, "id" | "generation" | "remote"> {
  readonly layout: number;
  readonly boot: string | null;
  /** The token ceiling. */
  readonly bound: number;
  /** The longest short lease. */
  readonly longestMs: number;
  /** There are unknown holders. */
  readonly strangers: boolean;
  /** The limits on claims. */
  readonly room?: NonNullable<SavedState["claimLimits"]>;
  readonly clean: {
    readonly claims: readonly ClaimText[];
    readonly sessions: readonly SessionText[];
    readonly recovery: RecoveryText | null;
  } | null;
}

/** JSON has no bigint. */
interface ClaimText extends Pick<SavedClaim, "token" | "arrival"> {
  readonly claim: Pick<Claim, "id" | "ttlMs" | "wait" | "label"> & {
    /** Default: false, as saved by a version that does not recall. */
    readonly recall?: true;
    readonly holds: Claim["locks"];
    /** The number of tokens that it requests; outside of `claim` that of its token range. */
    readonly tokens: number;
    readonly floor: string;
  };
  readonly tokens: number;
  readonly leftMs: number;
  readonly detached: boolean;
  /** true: by an operator. An earlier version reads any non-empty value as true. */
  readonly revoked: boolean | "maxHold";
  readonly session: string | null;
  /** Its account. Default: none, as on a server without credentials, or saved by a version without them. */
  readonly by?: string;
  /** The remaining time of its `maxHold`. Default: no limit. */
  readonly holdLeftMs?: number;
}

interface SessionText extends Pick<SavedSession, "id" | "label" | "pid" | "pidStart"> {
  readonly local: boolean;
  /** Its account. Default: none. */
  readonly by?: string;
}

interface RecoveryText extends Pick<SavedRecovery, "reason"> {
  readonly leftMs: number;
  /** The token ceiling. */
  readonly bound: number | null;
  /** The expected sessions. */
  readonly awaited: readonly string[] | null;
}

function toClaimText(saved: SavedClaim): ClaimText {
  const { id, locks, ttlMs, tokenCount, floor, wait, label, recall } = saved.claim;
  const options = { wait, label, ...(recall === true && { recall }) };
  const { token, arrival, revokeReason, account, remainingMaxHoldMs } = saved;
  return {
    claim: { id, holds: locks, ttlMs, tokens: tokenCount, floor: String(floor), ...options },
    token,
    tokens: saved.tokenCount,
    leftMs: saved.remainingMs,
    arrival,
    detached: saved.isDetached,
    revoked: revokeReason === "revoked" || (revokeReason ?? false),
    session: saved.sessionId,
    ...(account !== "" && { by: account }),
    ...(remainingMaxHoldMs !== undefined && { holdLeftMs: remainingMaxHoldMs }),
  };
}

function fromClaimText(text: ClaimText): SavedClaim {
  const { id, holds, ttlMs, tokens, floor, wait, label, recall } = text.claim;
  const options = { wait, label, ...(recall === true && { recall }) };
  const { token, arrival, revoked, holdLeftMs } = text;
  return {
    claim: { id, locks: holds, ttlMs, tokenCount: tokens, floor: BigInt(floor), ...options },
    token,
    tokenCount: text.tokens,
    remainingMs: text.leftMs,
    arrival,
    isDetached: text.detached,
    revokeReason: revoked === true ? "revoked" : revoked || null,
    sessionId: text.session,
    account: text.by ?? "",
    ...(holdLeftMs !== undefined && { remainingMaxHoldMs: holdLeftMs }),
  };
}

function toSessionText({ id, isLocal, label, pid, pidStart, account }: SavedSession): SessionText {
  return { id, local: isLocal, label, pid, pidStart, ...(account !== "" && { by: account }) };
}

function fromSessionText({ id, local, label, pid, pidStart, by = "" }: SessionText): SavedSession {
  return { id, isLocal: local, label, pid, pidStart, account: by };
}

function toRecoveryText({ reason, remainingMs, tokenCeiling, expectedSessions }: SavedRecovery): RecoveryText {
  return { reason, leftMs: remainingMs, bound: tokenCeiling, awaited: expectedSessions };
}

function fromRecoveryText({ reason, leftMs, bound, awaited }: RecoveryText): SavedRecovery {
  return { reason, remainingMs: leftMs, tokenCeiling: bound, expectedSessions: awaited };
}

const RECOVERY_ADVICE = "the next start then begins with a recovery of a minute, in which nothing new is granted";
const STATE_ADVICE = `move it away; ${RECOVERY_ADVICE}`;
const JOURNAL_ADVICE = `when no lock is held that is detached or has a lease longer than a minute, move it and "state" away; ${RECOVERY_ADVICE}`;
