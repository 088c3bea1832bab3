/**
 * The default store of a server: the lock table, and the part of it that survives a restart.
 *
 *   reclaiming   after an unclean start: no new locks are granted, and clients reclaim theirs. It ends when the longest
 *                short lease has passed, or when every client that may be a holder has reclaimed or ended.
 *   open
 *   draining     no locks are granted any more; the table is about to be saved
 *
 * Invariants
 * - Before an answer says "held": its tokens are below the ceiling on disk; its ttl is within the longest short lease on
 *   disk, or, if it is long or detached, the claim is in the journal.
 * - A token at or above the ceiling that the start found on disk was granted by a server that this state does not know (the
 *   directory was emptied, or restored from an older copy): the rest of the time that earlier leases can last is a
 *   recovery.
 */

import { NO_OBSERVER } from "../../lock-table/events.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import { withoutSuccessors } from "../../lock-table/successors.ts";
import { LockTable } from "../../lock-table/table.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListQuery, Page, Pause, Traits } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import { canAcquire } from "../auth/authorize.ts";
import type { EventLog } from "../events/event-log.ts";
import { recordRevocation } from "../events/event-log.ts";
import type { ClaimLimits, ServerLimits } from "../limits.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import type { Logger } from "../logger.ts";
import { drainingError } from "../request-error.ts";
import type { Backend, EndScope, OwnedClaim, ReleaseRequest, RenewRequest, RevokeRequest } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { linkToSession, unlinkFromSession } from "../session/session.ts";
import type { DurableLog } from "../storage/durable-log.ts";
import type { SavedClaim } from "../storage/storage.ts";
import type { ClaimAnswer, DurableState } from "../storage/write-ahead.ts";
import { MAX_UNJOURNALED_MS, WriteAhead } from "../storage/write-ahead.ts";
import { BatchClock } from "./batch-clock.ts";
import { checkGrantable, localTraits } from "./capabilities.ts";
import { ClaimLister } from "./claim-lister.ts";
import { ClaimOwnership } from "./claim-ownership.ts";
import { PendingPlacements } from "./pending-placements.ts";
import type { RecoveryPlan } from "./recovery-window.ts";
import { describeRecovery, RecoveryWindow } from "./recovery-window.ts";
import { restoreClaim, toSavedClaim } from "./saved-claims.ts";

const ignore = (): void => undefined;

/** The parts of the local backend. */
export interface LocalBackendOptions {
  readonly clock: Clock;
  readonly sessionMs: number;
  /** What was on disk at the start; null: nothing is saved. */
  readonly durableState: DurableState | null;
  /** What the start knows about earlier claims. */
  readonly recoveryPlan: RecoveryPlan;
  /** The saved state and its generation; null: nothing is saved. */
  readonly identity: StateEpoch | null;
  readonly log: Logger;
  readonly limits?: ServerLimits;
  /** The limits that reclaimed claims may have been granted under. Default: `limits`. */
  readonly formerLimits?: ClaimLimits;
  /** Receives all events. Default: none. */
  readonly eventLog?: EventLog;
  /**
   * Called before a session gets its first answer about a claim, because it may hold a lock from then on.
   * @throws RequestError
   */
  readonly persistSession: (session: Session) => void;
  /** Why durable writes fail; null: they do not, as far as known. */
  readonly unhealthyReason: () => string | null;
}

export class LocalBackend implements Backend {
  readonly isInProcess = true;
  readonly table: LockTable<Session>;
  readonly recoveryWindow: RecoveryWindow;
  readonly identity: StateEpoch | null;
  readonly #clock: Clock;
  readonly #batchClock: BatchClock;
  readonly #writeAhead: WriteAhead<Session> | null;
  readonly #log: Logger;
  readonly #eventLog: EventLog | null;
  readonly #ownership: ClaimOwnership;
  readonly #pendingPlacements: PendingPlacements;
  readonly #claimLister: ClaimLister;
  readonly #persistSession: (session: Session) => void;
  readonly unhealthyReason: () => string | null;
  #onChange: () => void = () => undefined;
  #isDraining = false;
  /** The log says that no new locks are granted, so it must also say when that ends. */
  #isPauseLogged = false;

  constructor(options: LocalBackendOptions) {
    const {
      clock,
      sessionMs,
      durableState,
      recoveryPlan,
      identity,
      log,
      persistSession,
      limits = DEFAULT_LIMITS,
    } = options;
    this.#clock = clock;
    this.#batchClock = new BatchClock(clock);
    this.#log = log;
    this.#persistSession = persistSession;
    this.unhealthyReason = options.unhealthyReason;
    this.identity = identity;
    this.#eventLog = options.eventLog ?? null;
    this.#pendingPlacements = new PendingPlacements(limits.claims);
    const { now, micros } = this.#batchClock.read();
    this.table = new LockTable<Session>({
      sessionMs,
      tokenCeiling: durableState?.state.tokenCeiling ?? Number.POSITIVE_INFINITY,
      maxTombstones: limits.claims,
      observer: this.#eventLog ?? NO_OBSERVER,
      onAdded: (record) => this.#ownership.onAdded(record),
      onRemoved: (record) => {
        this.#ownership.onRemoved(record);
        this.#writeAhead?.removeFromJournal(record);
      },
    });
    this.table.advance({ now, micros: Math.max(findCeilingAtStart(recoveryPlan), micros) });
    this.#ownership = new ClaimOwnership(this.table, limits, options.formerLimits);
    this.#writeAhead =
      durableState === null
        ? null
        : new WriteAhead({
            durableState,
            table: this.table,
            clock,
            toSavedClaim: (record) => this.toSavedClaim(record),
            onChange: () => this.#onChange(),
          });
    this.#claimLister = new ClaimLister(this.table, clock);
    this.recoveryWindow = new RecoveryWindow({
      table: this.table,
      clock,
      plan: recoveryPlan,
      onEnd: () => this.#onRecoveryEnd(),
      onOutdatedState: () => this.#onOutdatedState(),
    });
    // until start(): claims loaded from disk must not be admitted a second time
    this.table.pauseGrants();
  }

  /** Restores a claim loaded from disk. `owner`: null if it belongs to no session. */
  restore(saved: SavedClaim, owner: Session | null): void {
    const time = this.#batchClock.read();
    const record = restoreClaim(this.table, saved, owner, time);
    if (record === null) return;
    this.#writeAhead?.recordLease(saved.claim);
    if (saved.remainingMaxHoldMs !== undefined)
      this.#ownership.holdDeadlines.set(record, saved.remainingMaxHoldMs, time.now);
    if (owner !== null) linkToSession(record, owner);
  }

  /** The claim as it is to be saved now. */
  toSavedClaim(record: ClaimRecord<Session>): SavedClaim {
    const now = this.#clock.now();
    return toSavedClaim(record, now, this.#ownership.holdDeadlines.remainingMs(record, now));
  }

  /** All saved claims were restored: starts to grant, or begins the recovery. */
  start(): void {
    if (!this.recoveryWindow.isActive) this.table.resumeGrants();
    else this.recoveryWindow.endIfDone();
    this.#logPause();
  }

  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  reportOutdatedState(): void {
    this.recoveryWindow.start();
  }

  /** null: nothing is saved. */
  get durableLog(): DurableLog | null {
    return this.#writeAhead?.durableLog ?? null;
  }

  get claimCount(): number {
    return this.table.records.size;
  }

  get isRecovering(): boolean {
    return this.recoveryWindow.isActive;
  }

  traits(isLocal: boolean): Traits {
    return localTraits(this.table.sessionMs, isLocal);
  }

  recoveryRemainingMs(): number {
    return this.recoveryWindow.remainingMs();
  }

  hasClaims(session: Session): boolean {
    return session.records.size > 0;
  }

  findClaim(id: ClaimId): OwnedClaim | undefined {
    return this.table.records.get(id);
  }

  arrivalOf(id: ClaimId): number {
    return this.table.records.get(id)?.arrival ?? 0;
  }

  beginBatch(): void {
    this.#batchClock.beginBatch();
  }

  claim(session: Session, claim: Claim): MaybePromise<Answer> {
    const { micros } = this.#batchClock.read();
    if (this.#isDraining) throw drainingError();
    checkGrantable(claim, this.table, micros, this.#writeAhead !== null);
    this.#ownership.checkQuotas(session, claim);
    if (!session.isPersisted) this.#persistSession(session);
    const write = this.#writeAhead?.reserve(claim, micros);
    return write instanceof Promise ? this.#enqueueAfter(write, session, claim) : this.#enqueue(session, claim);
  }

  async #enqueueAfter(write: Promise<void>, session: Session, claim: Claim): Promise<Answer> {
    const isStillWanted = await this.#pendingPlacements.waitForWrite(claim.id, write);
    // A disconnected client retries after reconnecting; do not queue on its behalf meanwhile. The rules may have changed, too.
    const isPlaceable = isStillWanted && session.sink !== null && canAcquire(session.principal, claim);
    if (!isPlaceable) return this.table.tombstones.noneAnswer(claim.id);
    if (this.#isDraining) throw drainingError();
    this.#ownership.checkQuotas(session, claim);
    return this.#enqueue(session, claim);
  }

  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]> {
    const time = this.#batchClock.read();
    if (!session.isPersisted) this.#persistSession(session);
    const { records } = this.table;
    const claimAnswers = items.map(({ id, tokenCount }): ClaimAnswer<Session> => {
      const record = records.get(id);
      if (this.recoveryWindow.mayBeUnreported(id)) return { record, answer: undefined };
      if (record !== undefined) this.#ownership.takeOwnership(record, session);
      else if (this.#pendingPlacements.has(id)) return { record, answer: undefined };
      return { record, answer: this.#withPause(this.table.renew(id, session, time, tokenCount)) };
    });
    return this.#writeAhead?.persistAll(claimAnswers) ?? claimAnswers.map(({ answer }) => answer);
  }

  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]> {
    const time = this.#batchClock.read();
    this.table.advance(time);
    const results = items.map(({ id, unansweredTtl }) => {
      const record = this.table.records.get(id);
      this.#pendingPlacements.cancel(id);
      if (record === undefined) {
        if (!this.recoveryWindow.mayBeUnreported(id)) return this.table.release(id, time, unansweredTtl);
        // or it might be reclaimed later
        this.table.addTombstone(id, MAX_UNJOURNALED_MS);
        return true;
      }
      if (unansweredTtl !== undefined) this.table.addTombstone(id, unansweredTtl);
      this.#ownership.beforeRelease(record, session);
      return this.table.remove(record);
    });
    // also claims that ended before: their first release may have been answered with an error
    const write = this.#writeAhead?.persistEnds(items.map(({ id }) => id));
    return write instanceof Promise ? write.then(() => results) : results;
  }

  detach(session: Session, ids: readonly ClaimId[], remainingMs?: number): MaybePromise<readonly boolean[]> {
    const time = this.#batchClock.read();
    const writes: Promise<void>[] = [];
    const results = ids.map((id) => {
      const record = this.table.records.get(id);
      if (record === undefined) return false;
      unlinkFromSession(record);
      const keepOwner = (): void => this.#ownership.takeOwnershipAfterWrite(record, session, this.#batchClock.read());
      const isDetached = this.table.detach(id, time, remainingMs);
      const write = isDetached ? this.#writeAhead?.persistDetached(record, keepOwner) : keepOwner();
      if (write !== undefined) writes.push(write);
      return isDetached;
    });
    return writes.length === 0 ? results : Promise.all(writes).then(() => results);
  }

  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]> {
    const time = this.#batchClock.read();
    const records: ClaimRecord<Session>[] = [];
    const results = targets.map((target) => {
      const record = this.table.findHolder(target.key, Number(target.token));
      const isRevoked = this.table.revoke(target.key, Number(target.token), target.now, time);
      if (isRevoked) recordRevocation(target, session, this.#log, this.#eventLog);
      // also one that was revoked before: its write may have failed
      if (record !== null) records.push(record);
      return isRevoked;
    });
    this.endBatch();
    if (this.#writeAhead === null) return results;
    // never at once: the holders are told first, whether something has to be written or not
    return this.#writeAhead.persistRevocations(records).then(() => results);
  }

  list(
    { principal }: Session,
    filter: ListQuery,
    max: number,
    cursor: string | undefined,
  ): MaybePromise<Page<ClaimView>> {
    this.advance(this.#batchClock.read().now);
    return this.#claimLister.list(principal, filter, max, cursor);
  }

  reclaim(session: Session, items: readonly ReclaimItem[], isLast: boolean): MaybePromise<readonly Answer[]> {
    if (!session.isPersisted) this.#persistSession(session);
    const reclaimAll = (): Answer[] => {
      const time = this.#batchClock.read();
      return this.recoveryWindow.reclaim(session, items, isLast, time, {
        hasRoom: (claim, isHeld) => this.#ownership.hasRoomToReclaim(session, claim, isHeld),
        adopt: (record) => this.#ownership.adoptReclaimed(record, session, time),
      });
    };
    const write = this.#writeAhead?.reserveForReclaim(items);
    return write instanceof Promise ? write.then(reclaimAll) : reclaimAll();
  }

  endClaims(session: Session, scope: EndScope): void {
    this.#ownership.endClaims(session, scope, this.#batchClock.read());
    if (scope === "all") this.recoveryWindow.sessionReported(session);
  }

  suspend(session: Session): void {
    for (const { claim } of session.records) this.table.suspendWaiter(claim.id);
  }

  resume(session: Session): void {
    for (const { claim } of session.records) this.table.resumeWaiter(claim.id);
  }

  revalidateClaims(only?: Session): void {
    const withdrawn: ClaimRecord<Session>[] = [];
    this.table.advance(this.#batchClock.read());
    for (const record of only?.records ?? this.table.records.values()) {
      const { owner: session, claim, isHeld } = record;
      // the client of a removed credential may come back with another one of its account, and is judged then
      if (!session?.principal.isValid || canAcquire(session.principal, claim)) continue;
      if (isHeld) session.sink?.pushRecheck(claim.id);
      else withdrawn.push(record);
    }
    this.table.removeWaiters(withdrawn);
  }

  nextDueAt(): number {
    return Math.min(
      this.table.nextDueAt() ?? Number.POSITIVE_INFINITY,
      this.#ownership.holdDeadlines.nextDueAt(),
      this.#claimLister.nextDueAt(),
      this.recoveryWindow.endsAt,
      this.durableLog?.nextDueAt() ?? Number.POSITIVE_INFINITY,
    );
  }

  advance(now: number): void {
    const time = { now, micros: this.#batchClock.read().micros };
    this.table.advance(time);
    this.#ownership.holdDeadlines.advance(this.table, time);
    this.#claimLister.advance();
    this.recoveryWindow.endIfDone();
    this.durableLog?.advance(now);
  }

  endBatch(): void {
    this.#batchClock.endBatch();
    for (const { id, owner: session, answer } of this.table.drainNotifications()) {
      if (answer === "recalled" || answer === "recheck") {
        if (answer === "recalled") session?.sink?.pushRecalled(id);
        else session?.sink?.pushRecheck(id);
        continue;
      }
      const record = this.table.records.get(id);
      if (record !== undefined && session !== null)
        this.#ownership.startHoldDeadline(record, session, this.#clock.now());
      const sink = session?.sink;
      const persisted = record === undefined ? answer : (this.#writeAhead?.persist(record, answer) ?? answer);
      // its time is limited: the holders after it would have what it has left
      const pushed =
        record !== undefined && this.#ownership.holdDeadlines.has(record) ? withoutSuccessors(answer) : answer;
      if (!(persisted instanceof Promise) || answer.state === "none") sink?.pushAnswer(id, pushed);
      // the recheck makes the client ask again; by then the claim is in the journal
      if (persisted instanceof Promise) void persisted.then(ignore, ignore).then(() => sink?.pushRecheck(id));
    }
    this.#writeAhead?.raiseCeilingIfNeeded();
  }

  /** Stops granting and accepts no new claims. */
  drain(): void {
    this.#isDraining = true;
    this.table.pauseGrants();
  }

  #onRecoveryEnd(): void {
    this.#writeAhead?.durableLog.finishRecovery();
    if (this.#isDraining) return;
    this.table.resumeGrants();
    if (this.#isPauseLogged) this.#log("recovery is over: new locks are granted");
    this.#isPauseLogged = false;
  }

  #onOutdatedState(): void {
    this.#writeAhead?.durableLog.startRecovery(MAX_UNJOURNALED_MS);
    this.#logPause();
  }

  /** Logs why no new locks are granted, for operators and for programs that embed the server. */
  #logPause(): void {
    const { reason } = this.recoveryWindow;
    if (reason === null) return;
    this.#log(describeRecovery(reason, this.recoveryRemainingMs()), undefined, { level: "warn" });
    this.#isPauseLogged = true;
  }

  /** Adds the pause to the answer of a waiting claim during recovery. */
  #withPause(answer: Answer): Answer {
    return answer.state === "waiting" && this.isRecovering ? { ...answer, paused: this.#pause } : answer;
  }

  /**
   * The answer to a claim that does not wait and was not granted. During recovery that does not mean that a key is
   * locked: its holder may not have reclaimed yet.
   */
  #answerRefused(claim: Claim): Answer {
    const noneAnswer = this.table.tombstones.noneAnswer(claim.id);
    const isUnknown = this.isRecovering && !claim.wait && this.table.fitsBesideHolders(claim);
    return isUnknown ? { state: "none", paused: this.#pause } : noneAnswer;
  }

  get #pause(): Pause {
    return { reason: "recovery", remainingMs: Math.ceil(this.recoveryRemainingMs()) };
  }

  #enqueue(session: Session, claim: Claim): MaybePromise<Answer> {
    const time = this.#batchClock.read();
    const record = this.table.enqueue(claim, { owner: session, account: session.principal.name }, time);
    if (record === null) return this.#answerRefused(claim);
    const answer = this.#withPause(this.table.answerFor(record));
    if (answer.state === "none") return answer;
    this.#ownership.takeOwnership(record, session);
    this.#ownership.startHoldDeadline(record, session, record.placedAt);
    if (answer.state === "waiting") return answer;
    const persisted = this.#writeAhead?.persist(record, answer) ?? answer;
    if (!(persisted instanceof Promise)) return persisted;
    return persisted.catch((error: unknown) => {
      this.table.release(claim.id, this.#batchClock.read());
      throw error;
    });
  }
}

/** All earlier tokens are below it; 0: unknown. */
function findCeilingAtStart({ ceilingAtStart }: RecoveryPlan): number {
  return Number.isFinite(ceilingAtStart) ? ceilingAtStart : 0;
}
