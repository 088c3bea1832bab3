/** What a start does about earlier claims, as a pure function of what is on disk. */

import type { ClaimId } from "../../spi/driver.ts";
import { randomId } from "../../util/ids.ts";
import { CEILING_LEAD_MICROS } from "../storage/durable-log.ts";
import type { LoadedState, SavedClaim, SavedSession, SavedState } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS, unjournaledLeaseMs } from "../storage/write-ahead.ts";
import type { RecoveryPlan } from "./recovery-window.ts";
import { NO_RECOVERY } from "./recovery-window.ts";

/**
 * Each start reserves this lease length in advance, so that leases of usual length need no write of their own: the
 * default ttl.
 */
const DEFAULT_LEASE_MS = 30_000;

/** What the plan depends on besides the loaded state. */
export interface StartupPlanOptions {
  /** Clients may connect by something other than a Unix socket. */
  readonly remote: boolean;
  readonly sessionMs: number;
}

/** The plan derived from the loaded state. */
export interface StartupPlan extends RecoveryPlan {
  readonly claims: readonly SavedClaim[];
  readonly sessions: readonly SavedSession[];
  /** The state to be on disk from now on. */
  readonly state: SavedState;
}

/** The plan of every start without saved state. */
export const STATELESS_RECOVERY: RecoveryPlan = {
  reason: "stateless",
  durationMs: MAX_UNJOURNALED_MS,
  ceilingAtStart: Number.POSITIVE_INFINITY,
  expectedSessions: null,
  acceptsJournaled: false,
};

/** Decides how to start, given the loaded state. */
export function planStartup(
  loadedState: LoadedState,
  micros: number,
  { remote, sessionMs }: StartupPlanOptions,
): StartupPlan {
  const { state, isFirstStart } = loadedState;
  const clean = state?.clean ?? null;
  const nextState = {
    id: state?.id ?? randomId(),
    generation: (state?.generation ?? 0) + 1,
    tokenCeiling: Math.max(micros, state?.tokenCeiling ?? 0) + CEILING_LEAD_MICROS,
  };
  if (isFirstStart || (clean !== null && clean.recovery === null)) {
    const claims = clean?.claims ?? [];
    const longestLeaseMs = Math.max(findLongestLease(claims, sessionMs), DEFAULT_LEASE_MS);
    return {
      ...NO_RECOVERY,
      ceilingAtStart: state?.tokenCeiling ?? 0,
      claims,
      sessions: clean?.sessions ?? [],
      state: { ...nextState, longestLeaseMs, remote, hasUnknownHolders: false, clean: null },
    };
  }
  const recovery = planRecovery(loadedState);
  return {
    ...recovery,
    claims: clean?.claims ?? claimsFromJournal(loadedState),
    sessions: clean?.sessions ?? loadedState.sessions ?? [],
    state: {
      ...nextState,
      longestLeaseMs: state?.longestLeaseMs ?? MAX_UNJOURNALED_MS,
      remote: remote || (state?.remote ?? true),
      // if the server crashes before these sessions had their time, the next start must still expect them
      hasUnknownHolders: recovery.expectedSessions === null,
      clean: null,
    },
  };
}

/** Plans the start after one that did not end cleanly, or that was stopped during its own recovery. */
function planRecovery(loadedState: LoadedState): RecoveryPlan {
  const { state } = loadedState;
  // without a state file nothing is known about earlier grants
  if (state === null) {
    const unknownState = { ceilingAtStart: Number.POSITIVE_INFINITY, expectedSessions: null };
    return {
      ...unknownState,
      reason: "missing",
      durationMs: MAX_UNJOURNALED_MS,
      acceptsJournaled: loadedState.journal === null,
    };
  }
  const savedRecovery = state.clean?.recovery ?? null;
  if (savedRecovery === null) {
    const expectedSessions = findExpectedSessions(state, loadedState);
    return {
      reason: "crash",
      ceilingAtStart: state.tokenCeiling,
      durationMs: state.longestLeaseMs,
      expectedSessions,
      acceptsJournaled: false,
    };
  }
  const { reason, remainingMs, tokenCeiling, expectedSessions } = savedRecovery;
  return {
    reason,
    ceilingAtStart: tokenCeiling ?? Number.POSITIVE_INFINITY,
    durationMs: remainingMs,
    expectedSessions: expectedSessions && new Set(expectedSessions),
    acceptsJournaled: tokenCeiling === null,
  };
}

/** The sessions that may still be holders; null: unknown. */
function findExpectedSessions(state: SavedState, { sessions, isSameBoot }: LoadedState): ReadonlySet<string> | null {
  if (state.hasUnknownHolders) return null;
  // the list was not durable, but after a reboot no process of this machine is left
  if (!isSameBoot) return state.remote ? null : new Set();
  return sessions && new Set(sessions.map(({ id }) => id));
}

/** The claims of the journal. The elapsed time is unknown, so each gets its full lease again (decision 0011). */
function claimsFromJournal({ journal }: LoadedState): SavedClaim[] {
  const claims = new Map<ClaimId, SavedClaim>();
  for (const record of journal ?? []) {
    if ("drop" in record) claims.delete(record.drop);
    else claims.set(record.put.claim.id, { ...record.put, remainingMs: Number(record.put.claim.ttlMs) });
  }
  return [...claims.values()];
}

/** The longest lease among these claims that a restart would have to wait for. */
function findLongestLease(claims: readonly SavedClaim[], sessionMs: number): number {
  return claims.reduce((longest, { claim }) => Math.max(longest, unjournaledLeaseMs(claim.ttlMs, sessionMs)), 0);
}
