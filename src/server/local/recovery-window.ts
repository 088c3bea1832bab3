/**
 * When the lock table of a server grants new claims: this file alone pauses its grants and resumes them, and logs it.
 *
 *   starting     the claims on disk are being restored. They must not be admitted a second time.
 *   recovering   after an unclean start: nothing new is granted, and clients reclaim their locks. It ends when the
 *                longest short lease has passed, or when every client that may be a holder has reclaimed or ended. It
 *                can also begin within a minute after the start: a client proves that the server does not know all
 *                holders.
 *   open         claims are granted
 *   draining     nothing is granted any more. A recovery goes on, since what is left of it is saved.
 */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import { toAnswer } from "../../lock-table/table.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Answer, Claim, ClaimId, Pause } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import type { Session } from "../session/session.ts";
import type { DurableLog } from "../storage/durable-log.ts";
import type { RecoveryReason, SavedRecovery } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS, needsJournal } from "../storage/write-ahead.ts";

/** What a start knows about earlier claims. */
export interface RecoveryPlan {
  /** Why a recovery is needed; null: it is not. */
  readonly reason: RecoveryReason | null;
  /** The longest duration of the recovery; 0: none. */
  readonly durationMs: number;
  /** Tokens of earlier runs are below it, new ones are not. Infinity: unknown. */
  readonly ceilingAtStart: number;
  /** Ids of sessions that may be holders and have not reclaimed yet; null: there may be unknown ones. */
  readonly expectedSessions: ReadonlySet<string> | null;
  /** The journal may lack long and detached claims: they are reclaimed like others. */
  readonly acceptsJournaled: boolean;
}

/** No earlier lock can be held except those loaded from disk. */
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

/** Why no new locks are granted, and for how long at most. For people. */
export function describeRecovery(reason: RecoveryReason, remainingMs: number): string {
  return `${REASON_TEXTS[reason]}: granting nothing new for up to ${Math.ceil(remainingMs / 1_000)} s`;
}

export interface RecoveryWindowOptions {
  readonly table: LockTable<Session>;
  readonly clock: Clock;
  readonly plan: RecoveryPlan;
  readonly log: Logger;
  /** Where a later start finds that this recovery was not finished; null: nothing is saved. */
  readonly durableLog: Pick<DurableLog, "startRecovery" | "finishRecovery"> | null;
}

export class RecoveryWindow {
  readonly #table: LockTable<Session>;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #durableLog: RecoveryWindowOptions["durableLog"];
  /** All short leases from before this start have ended by this time. */
  readonly #earlierLeasesEndAt: number;
  #ceilingAtStart: number;
  #expectedSessions: Set<string> | null;
  #acceptsJournaled: boolean;
  #reason: RecoveryReason | null;
  /** When the recovery ends at the latest, on the clock's scale; Infinity: it has ended. */
  endsAt: number;
  #isDraining = false;

  constructor({ table, clock, plan, log, durableLog }: RecoveryWindowOptions) {
    const { reason, ceilingAtStart, durationMs, expectedSessions, acceptsJournaled } = plan;
    this.#table = table;
    this.#clock = clock;
    this.#reason = reason;
    this.#ceilingAtStart = ceilingAtStart;
    this.#expectedSessions = expectedSessions === null ? null : new Set(expectedSessions);
    this.#acceptsJournaled = acceptsJournaled;
    this.#log = log;
    this.#durableLog = durableLog;
    this.#earlierLeasesEndAt = clock.now() + MAX_UNJOURNALED_MS;
    this.endsAt = durationMs > 0 ? clock.now() + durationMs : Number.POSITIVE_INFINITY;
    table.pauseGrants();
  }

  /** All saved claims were restored: grants begin, or the recovery. */
  start(): void {
    if (this.isActive && !this.#isDone()) this.#logPause();
    else this.#resume();
  }

  /** Nothing is granted any more. */
  drain(): void {
    this.#isDraining = true;
    this.#table.pauseGrants();
  }

  /** Why no new locks are granted; null: they are. */
  get reason(): RecoveryReason | null {
    return this.isActive ? this.#reason : null;
  }

  /** The rest of the recovery, for the next start after a clean shutdown; null: nothing. */
  toSavedRecovery(): SavedRecovery | null {
    if (this.reason === null) return null;
    const tokenCeiling = Number.isFinite(this.#ceilingAtStart) ? this.#ceilingAtStart : null;
    return {
      reason: this.reason,
      remainingMs: this.remainingMs(),
      tokenCeiling,
      expectedSessions: this.#expectedSessions && [...this.#expectedSessions],
    };
  }

  /** What clients learn about the recovery; null: locks are granted. */
  get pause(): Pause | null {
    return this.isActive ? { reason: "recovery", remainingMs: Math.ceil(this.remainingMs()) } : null;
  }

  /**
   * Starts a recovery because a client has seen a later state: the directory was emptied, or restored from an older
   * copy. There may be unknown holders until the leases from before our start have ended, so the recovery lasts for the
   * rest of that time. After it no unknown short lease can be held.
   */
  reportOutdatedState(): void {
    if (this.#ceilingAtStart === Number.POSITIVE_INFINITY || this.#clock.now() >= this.#earlierLeasesEndAt) return;
    this.#reason = "outdated";
    this.#ceilingAtStart = Number.POSITIVE_INFINITY;
    this.#expectedSessions = null;
    this.#acceptsJournaled = true;
    this.endsAt = this.isActive ? Math.max(this.endsAt, this.#earlierLeasesEndAt) : this.#earlierLeasesEndAt;
    this.#table.pauseGrants();
    this.#durableLog?.startRecovery(MAX_UNJOURNALED_MS);
    this.#logPause();
  }

  get isActive(): boolean {
    return this.endsAt !== Number.POSITIVE_INFINITY;
  }

  /** Milliseconds until the recovery ends; 0: it has ended. */
  remainingMs(): number {
    return this.isActive ? Math.max(this.endsAt - this.#clock.now(), 1) : 0;
  }

  /** True if this unknown claim may have been held before the restart. */
  mayBeUnreported(id: ClaimId): boolean {
    return this.isActive && !this.#table.records.has(id) && this.#table.tombstones.reasonOf(id) === undefined;
  }

  /** Reclaims the claims that the session reports. isLast: the session has reported all of them. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
    time: Timestamps,
    callbacks: ReclaimCallbacks,
  ): Answer[] {
    this.#table.advance(time);
    if (items.some((item) => this.#isFromLaterState(item, time.micros))) this.reportOutdatedState();
    const limits = { ceilingAtStart: this.#ceilingAtStart, acceptsJournaled: this.#acceptsJournaled };
    const rules = { isRecovering: this.isActive, ...limits, time, ...callbacks };
    const answers = reclaimAll(this.#table, session, items, rules);
    if (isLast) this.sessionReported(session);
    return answers;
  }

  /**
   * True if the claim was granted by a server run that our state does not know. A token that no server can have issued
   * proves nothing.
   */
  #isFromLaterState({ claim, lastState }: ReclaimItem, micros: number): boolean {
    return (
      lastState.state === "held" &&
      !this.#table.records.has(claim.id) &&
      this.#table.tombstones.reasonOf(claim.id) === undefined &&
      Number(lastState.token) + lastState.tokenCount > this.#ceilingAtStart &&
      this.#table.acceptsFloor(claim, BigInt(lastState.token), micros)
    );
  }

  /** The session has reported all its claims, or its process has ended. */
  sessionReported(session: Session): void {
    this.#expectedSessions?.delete(session.id);
    this.endIfDone();
  }

  endIfDone(): void {
    if (!this.isActive || !this.#isDone()) return;
    this.#resume();
    if (!this.#isDraining) this.#log("recovery is over: new locks are granted");
  }

  #isDone(): boolean {
    return this.#clock.now() >= this.endsAt || this.#expectedSessions?.size === 0;
  }

  #resume(): void {
    this.endsAt = Number.POSITIVE_INFINITY;
    this.#durableLog?.finishRecovery();
    if (!this.#isDraining) this.#table.resumeGrants();
  }

  /** Logs why no new locks are granted, for operators and for programs that embed the server. */
  #logPause(): void {
    if (this.reason !== null)
      this.#log(describeRecovery(this.reason, this.remainingMs()), undefined, { level: "warn" });
  }
}

/** Quotas and ownership of reclaimed claims. */
export interface ReclaimCallbacks {
  /** True if the quotas allow the claim. */
  readonly hasRoom: (claim: Claim, isHeld: boolean) => boolean;
  /** Makes the session the owner of the claim. */
  readonly adopt: (record: ClaimRecord<Session>) => void;
}

/** The conditions for reclaiming. */
interface ReclaimRules extends ReclaimCallbacks {
  /** True while the recovery lasts. */
  readonly isRecovering: boolean;
  readonly ceilingAtStart: number;
  readonly acceptsJournaled: boolean;
  readonly time: Timestamps;
}

/**
 * Reclaims the items and returns the state of each claim. The table's time must be up to date. A claim that a later one
 * displaces was answered "held": its client is notified, and renews all claims after it has reclaimed them.
 */
function reclaimAll(
  table: LockTable<Session>,
  session: Session,
  items: readonly ReclaimItem[],
  rules: ReclaimRules,
): Answer[] {
  return items.map((item) => {
    reclaimOne(table, session, item, rules);
    // the session owns it before the next one is judged, which may exceed its quota
    return statusAfterReclaim(table, item.claim.id, rules);
  });
}

function reclaimOne(
  table: LockTable<Session>,
  session: Session,
  { claim, lastState }: ReclaimItem,
  rules: ReclaimRules,
): void {
  const { isRecovering, ceilingAtStart, acceptsJournaled, time } = rules;
  const account = session.principal.name;
  if (!isRecovering || table.records.has(claim.id) || table.tombstones.reasonOf(claim.id) !== undefined) return;
  if (!rules.hasRoom(claim, lastState.state === "held")) return;
  if (lastState.state === "waiting")
    table.claim({ ...claim, wait: true }, { owner: session, arrival: lastState.arrival, account }, time);
  else {
    const token = Number(lastState.token);
    const remainingMs = claim.ttlMs === "session" ? 0 : Math.min(lastState.remainingMs, claim.ttlMs);
    if (
      token + lastState.tokenCount > ceilingAtStart ||
      !table.acceptsFloor(claim, BigInt(lastState.token), time.micros)
    )
      return;
    // a long claim was in the journal, or was never granted
    if ((needsJournal(claim.ttlMs) && !acceptsJournaled) || (claim.ttlMs !== "session" && remainingMs <= 0)) return;
    table.reclaim(claim, { owner: session, account }, { token, tokenCount: lastState.tokenCount, remainingMs });
  }
}

function statusAfterReclaim(table: LockTable<Session>, id: ClaimId, { adopt, time }: ReclaimRules): Answer {
  const record = table.records.get(id);
  if (record === undefined) return table.tombstones.noneAnswer(id);
  if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
  adopt(record);
  table.resumeWaiter(id);
  return toAnswer(record, time.now, table.sessionMs);
}
