/**
 * The storage that the local backend needs, as an interface for the simulator. The real one is in state-directory.ts;
 * the words of its files are in format.ts.
 */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { Claim } from "../../spi/driver.ts";
import type { ClaimLimits } from "../limits.ts";

/** The layout of the saved state. A server refuses a newer or older one. */
export const FORMAT_VERSION = 2;

/** A saved claim. */
export interface SavedClaim {
  readonly claim: Claim;
  /** First token of its token range; 0: it waits. */
  readonly token: number;
  readonly tokenCount: number;
  /** What was left of its lease, or its full ttl if that is unknown. Unused for "session" claims. */
  readonly remainingMs: number;
  readonly arrival: number;
  readonly isDetached: boolean;
  readonly revokeReason: ClaimRecord["revokeReason"];
  /** The session it belongs to; null: none. */
  readonly sessionId: string | null;
  /** The account that created it; "": none. */
  readonly account: string;
  /** The remaining time of its `maxHold`. Default: no limit. */
  readonly remainingMaxHoldMs?: number;
}

/** A saved session. */
export interface SavedSession {
  readonly id: string;
  readonly isLocal: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** The account of its client; "": none. */
  readonly account: string;
}

/** Why a server grants no new locks for some time after its start. */
export type RecoveryReason =
  /** The previous run did not stop cleanly. */
  | "crash"
  /** The server keeps no state. */
  | "stateless"
  /** The state file is missing from a directory that has been in use. */
  | "missing"
  /** A run file is damaged, so the locks of its run are unknown. */
  | "runs"
  /** A client has seen a later state: the directory was emptied, or restored from an older copy. */
  | "outdated";

/** The rest of a recovery in which its server was stopped. */
export interface SavedRecovery {
  readonly reason: RecoveryReason;
  readonly remainingMs: number;
  /** Earlier tokens are below it; null: unknown. */
  readonly tokenCeiling: number | null;
  /** Ids of sessions that may be holders and had not reclaimed yet; null: there may be unknown ones. */
  readonly expectedSessions: readonly string[] | null;
}

/** The contents of the state file. */
export interface SavedState {
  /** Identifies the state from its first start on. */
  readonly id: string;
  /** The number of its starts, counted from 1. */
  readonly generation: number;
  /** New tokens of the next start are at or above this. */
  readonly tokenCeiling: number;
  /**
   * The longest short lease that may be held, in milliseconds; a session counts as the time it survives without
   * contact.
   */
  readonly longestLeaseMs: number;
  /** Clients on other machines, or over TCP, may be holders. */
  readonly remote: boolean;
  /**
   * There may be holders from before the start that the list of sessions does not contain: a recovery was not finished.
   */
  readonly hasUnknownHolders: boolean;
  /** The limits on claims, or the wider ones before an unfinished recovery. Default: the current ones. */
  readonly claimLimits?: ClaimLimits;
  /** Only after a clean shutdown: the complete table, and the rest of a recovery. */
  readonly clean: {
    readonly claims: readonly SavedClaim[];
    readonly sessions: readonly SavedSession[];
    readonly recovery: SavedRecovery | null;
  } | null;
}

/** A line of the journal: a claim that must come back after a crash, or the id of one that must not. */
export type JournalRecord = { readonly put: SavedClaim } | { readonly drop: string };

/** The state found at the start. */
export interface LoadedState {
  /** null: there was no state file. */
  readonly state: SavedState | null;
  /** The first start: no lock was ever recorded here, so none can be held. */
  readonly isFirstStart: boolean;
  /** null: there was neither a journal nor a state file. */
  readonly journal: readonly JournalRecord[] | null;
  /** The machine has not been rebooted since the previous start. */
  readonly isSameBoot: boolean;
  /** Sessions that may be holders; null: the list cannot be relied on. */
  readonly sessions: readonly SavedSession[] | null;
}

export interface Storage {
  /** @throws StateError for files that are damaged, of another layout, or do not belong together */
  load(): Promise<LoadedState>;
  /**
   * Begins the next start: replaces sessions and journal, then the state; settles when they survive a loss of power.
   */
  beginRun(start: {
    readonly state: SavedState;
    readonly journal: readonly JournalRecord[];
    readonly sessions: readonly SavedSession[];
  }): Promise<void>;
  /** Replaces the state of this start; settles when it survives a loss of power. */
  saveState(state: SavedState): Promise<void>;
  /**
   * Appends to the journal; settles when the records survive a loss of power. One call at a time. If it fails, nothing
   * was appended, and it may be called again. `claimCount`: how many claims the journal has then; room is kept to drop
   * as many when the disk is full.
   */
  appendJournal(records: readonly JournalRecord[], claimCount: number): Promise<void>;
  /** Replaces the journal durably, with room to drop all of these. If it fails, the earlier one is as it was. */
  rewriteJournal(records: readonly JournalRecord[]): Promise<void>;
  /** Adds a session to the plain file of sessions that may be holders. Synchronous and not durable. */
  addSession(session: SavedSession): void;
  /** Removes a session from that file, likewise. */
  removeSession(id: string): void;
  close(): Promise<void>;
}
