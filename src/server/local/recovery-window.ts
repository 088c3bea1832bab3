/** The time after an unclean start in which clients tell what they had (design A.5). */

import { toAnswer } from "../../lock-table/answer.ts";
import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { Session } from "../session/session.ts";
import type { RecoveryReason, SavedRecovery } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS, needsJournal } from "../storage/write-ahead.ts";
import type { Timestamps } from "./batch-clock.ts";

/** How a start begins. */
export interface RecoveryPlan {
  /** Why there is something to reclaim; null: there is nothing. */
  readonly reason: RecoveryReason | null;
  /** How long to reclaim at most; 0: open at once. */
  readonly durationMs: number;
  /** Tokens from before this start lie below it; new ones do not. Infinity: that is not known. */
  readonly ceilingAtStart: number;
  /** Ids of the sessions that may hold something and have not told yet; null: there may be others than we know of. */
  readonly expectedSessions: ReadonlySet<string> | null;
  /** Long and detached claims may be missing from the journal: they are taken back like others. */
  readonly acceptsJournaled: boolean;
}

/** Nothing from before this start can be held, but for what came back from disk. */
export const NO_RECOVERY: RecoveryPlan = {
  reason: null,
  durationMs: 0,
  ceilingAtStart: 0,
  expectedSessions: null,
  acceptsJournaled: false,
};

const REASON_TEXTS: Readonly<Record<RecoveryReason, string>> = {
  crash: "the previous run of the server did not stop cleanly",
  stateless: "no state is kept from the previous run",
  missing: "the state file is missing from a directory that has been in use",
  runs: "a run file is damaged",
  outdated:
    "a client has seen a later state than this one: the state directory was emptied, or restored from an older copy",
};

/** Why nothing new is granted, and for how long at most. For people. */
export function describeRecovery(reason: RecoveryReason, remainingMs: number): string {
  return `${REASON_TEXTS[reason]}: granting nothing new for up to ${Math.ceil(remainingMs / 1_000)} s`;
}

export interface RecoveryWindowOptions {
  readonly table: LockTable;
  readonly clock: Clock;
  readonly plan: RecoveryPlan;
  /** Called when it is over. */
  readonly onEnd: () => void;
  /** Called when a client has shown that the state is older than what it has seen. */
  readonly onOutdatedState: () => void;
}

export class RecoveryWindow {
  readonly #table: LockTable;
  readonly #clock: Clock;
  readonly #onEnd: () => void;
  readonly #onOutdatedState: () => void;
  /** Short leases from before this start have ended by then. */
  readonly #earlierLeasesEndAt: number;
  #ceilingAtStart: number;
  #expectedSessions: Set<string> | null;
  #acceptsJournaled: boolean;
  #reason: RecoveryReason | null;
  /** When it ends at the latest, on the clock's scale; Infinity: it has ended. */
  endsAt: number;

  constructor({ table, clock, plan, onEnd, onOutdatedState }: RecoveryWindowOptions) {
    const { reason, ceilingAtStart, durationMs, expectedSessions, acceptsJournaled } = plan;
    this.#table = table;
    this.#clock = clock;
    this.#reason = reason;
    this.#ceilingAtStart = ceilingAtStart;
    this.#expectedSessions = expectedSessions === null ? null : new Set(expectedSessions);
    this.#acceptsJournaled = acceptsJournaled;
    this.#onEnd = onEnd;
    this.#onOutdatedState = onOutdatedState;
    this.#earlierLeasesEndAt = clock.now() + MAX_UNJOURNALED_MS;
    this.endsAt = durationMs > 0 ? clock.now() + durationMs : Number.POSITIVE_INFINITY;
  }

  /** Why nothing new is granted now; null: it is. */
  get reason(): RecoveryReason | null {
    return this.isActive ? this.#reason : null;
  }

  /** What the next start is to go on with, should this one end cleanly; null: nothing. */
  toSavedRecovery(): SavedRecovery | null {
    if (this.reason === null) return null;
    const bound = Number.isFinite(this.#ceilingAtStart) ? this.#ceilingAtStart : null;
    return {
      reason: this.reason,
      leftMs: this.remainingMs(),
      bound,
      awaited: this.#expectedSessions && [...this.#expectedSessions],
    };
  }

  /**
   * A client has seen a later state than ours: the folder was emptied, or an older copy of it was put back. Others may hold
   * what we know nothing of, as long as the leases of before our start can last; so the rest of that time is a recovery.
   * Later than that nobody holds by a short lease what we have not heard of.
   */
  start(): void {
    if (this.#ceilingAtStart === Number.POSITIVE_INFINITY || this.#clock.now() >= this.#earlierLeasesEndAt) return;
    this.#reason = "outdated";
    this.#ceilingAtStart = Number.POSITIVE_INFINITY;
    this.#expectedSessions = null;
    this.#acceptsJournaled = true;
    this.endsAt = this.isActive ? Math.max(this.endsAt, this.#earlierLeasesEndAt) : this.#earlierLeasesEndAt;
    this.#table.pauseGrants();
    this.#onOutdatedState();
  }

  get isActive(): boolean {
    return this.endsAt !== Number.POSITIVE_INFINITY;
  }

  /** Milliseconds until it is over; 0: it is. */
  remainingMs(): number {
    return this.isActive ? Math.max(this.endsAt - this.#clock.now(), 1) : 0;
  }

  /** May this claim have been held before the restart, although we know nothing of it? */
  mayBeUnreported(id: ClaimId): boolean {
    return this.isActive && !this.#table.records.has(id) && this.#table.tombstones.reasonOf(id) === undefined;
  }

  /** The same of one that is given back; then nobody may take it back any more. */
  releaseUnreported(id: ClaimId): boolean {
    const isUnreported = this.mayBeUnreported(id);
    if (isUnreported) this.#table.addTombstone(id, MAX_UNJOURNALED_MS);
    return isUnreported;
  }

  /** Takes back what the session says that it had; last: it has told all. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
    { now, micros }: Timestamps,
    callbacks: ReclaimCallbacks,
  ): Answer[] {
    this.#table.advance(now, micros);
    if (items.some((item) => this.#isFromLaterState(item, micros))) this.start();
    const limits = { ceilingAtStart: this.#ceilingAtStart, acceptsJournaled: this.#acceptsJournaled };
    const rules = { isRecovering: this.isActive, ...limits, now, micros, ...callbacks };
    const answers = reclaimAll(this.#table, session, items, rules);
    if (isLast) this.sessionReported(session);
    return answers;
  }

  /** It was granted by a server that our state knows nothing of. What no server can have granted shows nothing. */
  #isFromLaterState({ claim, lastState }: ReclaimItem, micros: number): boolean {
    return (
      lastState.state === "held" &&
      !this.#table.records.has(claim.id) &&
      this.#table.tombstones.reasonOf(claim.id) === undefined &&
      Number(lastState.token) + lastState.tokens > this.#ceilingAtStart &&
      this.#table.tokenIssuer.acceptsFloor(BigInt(lastState.token), micros)
    );
  }

  /** The session has told all it had, or its process is gone. */
  sessionReported(session: Session): void {
    this.#expectedSessions?.delete(session.id);
    this.endIfDone();
  }

  endIfDone(): void {
    if (!this.isActive || (this.#clock.now() < this.endsAt && this.#expectedSessions?.size !== 0)) return;
    this.endsAt = Number.POSITIVE_INFINITY;
    this.#onEnd();
  }
}

/** Who counts the claims of each session. */
export interface ReclaimCallbacks {
  /** Is there room for it? */
  readonly hasRoom: (claim: Claim, isHeld: boolean) => boolean;
  /** Makes a claim that stands the session's, and counts it. */
  readonly assignOwner: (record: ClaimRecord) => void;
}

/** Which claims may be taken back. */
interface ReclaimRules extends ReclaimCallbacks {
  /** Is it still the time for it? */
  readonly isRecovering: boolean;
  readonly ceilingAtStart: number;
  readonly acceptsJournaled: boolean;
  readonly now: number;
  readonly micros: number;
}

/** Gives where each claim stands now. The table's time has been set. */
function reclaimAll(table: LockTable, session: Session, items: readonly ReclaimItem[], rules: ReclaimRules): Answer[] {
  for (const item of items) reclaimOne(table, session, item, rules);
  // only now, since of two that conflict the later one may be the one that stays
  return items.map(({ claim }) => statusAfterReclaim(table, claim.id, rules));
}

function reclaimOne(table: LockTable, session: Session, { claim, lastState }: ReclaimItem, rules: ReclaimRules): void {
  const { isRecovering, ceilingAtStart, acceptsJournaled, now, micros } = rules;
  const account = session.principal.name;
  if (!isRecovering || table.records.has(claim.id) || table.tombstones.reasonOf(claim.id) !== undefined) return;
  if (!rules.hasRoom(claim, lastState.state === "held")) return;
  if (lastState.state === "waiting")
    table.claim({ ...claim, wait: true }, session, now, micros, lastState.arrival, account);
  else {
    const token = Number(lastState.token);
    const leftMs = claim.ttlMs === "session" ? 0 : Math.min(lastState.leftMs, claim.ttlMs);
    if (token + lastState.tokens > ceilingAtStart || !table.tokenIssuer.acceptsFloor(BigInt(lastState.token), micros))
      return;
    // what is long was in the journal, or was never granted
    if ((needsJournal(claim.ttlMs) && !acceptsJournaled) || (claim.ttlMs !== "session" && leftMs <= 0)) return;
    table.reclaim(claim, session, token, lastState.tokens, leftMs, account);
  }
  // at once: the next one of this frame may be one too many
  const record = table.records.get(claim.id);
  if (record !== undefined) rules.assignOwner(record);
}

function statusAfterReclaim(table: LockTable, id: ClaimId, { assignOwner, now }: ReclaimRules): Answer {
  const record = table.records.get(id);
  if (record === undefined) return table.tombstones.noneAnswer(id);
  if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
  assignOwner(record);
  table.resumeWaiter(id);
  return toAnswer(record, now, table.sessionMs);
}
