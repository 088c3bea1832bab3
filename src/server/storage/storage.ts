/** What the keeper needs of a disk, so that a simulator can give it one. The real one is in state-directory.ts. */

import type { Claim } from "../../spi/driver.ts";
import type { ClaimLimits } from "../config/limits.ts";

/** The layout of what is saved. A server refuses what is newer, and what is older. */
export const FORMAT_VERSION = 2;

/** A claim as it is saved. */
export interface SavedClaim {
  readonly claim: Claim;
  /** First token of its run; 0: it waits. */
  readonly token: number;
  readonly tokens: number;
  /** What its lease had left; its whole ttl where that is not known. "session" claims have none of their own. */
  readonly leftMs: number;
  readonly arrival: number;
  readonly detached: boolean;
  /** true: by an operator. */
  readonly revoked: boolean | "maxHold";
  /** The session it belongs to; null: none. */
  readonly session: string | null;
  /** The account that placed it. Default: none, as on a server without credentials, or of a version without them. */
  readonly by?: string;
  /** How long it still may be held. Default: as long as it is renewed. */
  readonly holdLeftMs?: number;
}

/** A session as it is saved. */
export interface SavedSession {
  readonly id: string;
  readonly local: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** The account of its client. Default: none. */
  readonly by?: string;
}

/** Why a server grants nothing new for a while after its start. */
export type RecoveryReason =
  /** The last server did not stop cleanly. */
  | "crash"
  /** It keeps no state. */
  | "stateless"
  /** The state file is missing from a folder that has been in use. */
  | "missing"
  /** It cannot be told what a run holds: its file is damaged. */
  | "runs"
  /** A client has seen a later state: an older copy of the folder was put back, or the folder was emptied. */
  | "outdated";

/** What was left of a recovery when its server was stopped. */
export interface SavedRecovery {
  readonly reason: RecoveryReason;
  readonly leftMs: number;
  /** Tokens from before lie below it; null: that is not known. */
  readonly bound: number | null;
  /** Sessions that may hold something and had not said so yet; null: there may be others. */
  readonly awaited: readonly string[] | null;
}

/** The state file. */
export interface SavedState {
  /** Names the state, from its first start on. */
  readonly id: string;
  /** Its starts, counted from 1. */
  readonly generation: number;
  /** New tokens of the next start lie at or above this. */
  readonly bound: number;
  /** The longest short lease that may be held, milliseconds; a session counts as long as it lasts in silence. */
  readonly longestMs: number;
  /** Clients of other machines, or over TCP, may hold. */
  readonly remote: boolean;
  /** Clients that the plain file of sessions does not name may hold something from before: a reclaim was not finished. */
  readonly strangers: boolean;
  /** How many claims there may be, or may have been before a recovery that was not over. Default: as many as now. */
  readonly room?: ClaimLimits;
  /** Only after a clean shutdown: the whole table, and what was left of a recovery. */
  readonly clean: {
    readonly claims: readonly SavedClaim[];
    readonly sessions: readonly SavedSession[];
    readonly recovery: SavedRecovery | null;
  } | null;
}

/** A line of the journal: a claim that must come back, or the id of one that must not any more. */
export type JournalRecord = { readonly put: SavedClaim } | { readonly drop: string };

/** What was found at the start. */
export interface LoadedState {
  /** null: there was no state file. */
  readonly state: SavedState | null;
  /** This is the first start: nothing was ever saved here, so nothing can be held. */
  readonly isFirstStart: boolean;
  /** null: there was none, and no state file either. */
  readonly journal: readonly JournalRecord[] | null;
  /** The machine has not been started anew since the last server was started. */
  readonly isSameBoot: boolean;
  /** Clients that may hold something; null: the file says nothing that can be relied on. */
  readonly sessions: readonly SavedSession[] | null;
}

export interface Storage {
  /** @throws StateError for what is damaged, of another layout, or does not belong together */
  load(): Promise<LoadedState>;
  /** Begins another start: sessions and journal are replaced, then the state; settles when it would survive a loss of power. */
  beginRun(start: {
    readonly state: SavedState;
    readonly journal: readonly JournalRecord[];
    readonly sessions: readonly SavedSession[];
  }): Promise<void>;
  /** Replaces the state of this start; settles when it would survive a loss of power. */
  saveState(state: SavedState): Promise<void>;
  /** Appends to the journal; settles when it would survive a loss of power. One call at a time. */
  appendJournal(records: readonly JournalRecord[]): Promise<void>;
  /** Replaces the journal durably. */
  rewriteJournal(records: readonly JournalRecord[]): Promise<void>;
  /** Adds a client to the plain file of those who may hold something. Synchronous and not durable. */
  addSession(session: SavedSession): void;
  /** Takes one out of it, likewise. */
  removeSession(id: string): void;
  close(): Promise<void>;
}
