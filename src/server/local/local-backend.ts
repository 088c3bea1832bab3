/**
 * The default store of a server: the lock table, and around it what each call has to ask or to tell. Each question has
 * one owner:
 *
 *   may anything be granted now?                     recovery-window.ts
 *   may this claim be granted at all?                capabilities.ts
 *   does its client exceed a limit?                  claim-quotas.ts
 *   must something be on disk before?                storage/write-ahead.ts; pending-placements.ts while that takes
 *                                                    time
 *   whose is the claim, and what ends with whom?     claim-ownership.ts
 *   how long may it be held?                         hold-deadlines.ts
 *
 * Invariants
 * - Before an answer says "held": its tokens are below the ceiling on disk; its ttl is within the longest short lease
 *   on disk, or, if it is long or detached, the claim is in the journal.
 * - A token at or above the ceiling that the start found on disk was granted by a server that this state does not know
 *   (the directory was emptied, or restored from an older copy): the rest of the time that earlier leases can last is a
 *   recovery.
 */

import { canAcquire } from "../../auth/authorize.ts";
import { NO_OBSERVER } from "../../lock-table/events.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import { withoutSuccessors } from "../../lock-table/successors.ts";
import { LockTable } from "../../lock-table/table.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListQuery, Page, Traits } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
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
import type { SavedClaim, SavedSession } from "../storage/storage.ts";
import type { ClaimAnswer, DurableState } from "../storage/write-ahead.ts";
import { MAX_UNJOURNALED_MS, WriteAhead } from "../storage/write-ahead.ts";
import { BatchClock } from "./batch-clock.ts";
import { checkGrantable, localTraits } from "./capabilities.ts";
import { ClaimLister } from "./claim-lister.ts";
import { ClaimOwnership } from "./claim-ownership.ts";
import { ClaimQuotas } from "./claim-quotas.ts";
import { HoldDeadlines } from "./hold-deadlines.ts";
import { PendingPlacements } from "./pending-placements.ts";
import type { RecoveryPlan } from "./recovery-window.ts";
import { RecoveryWindow } from "./recovery-window.ts";
import { findNextToken, restoreClaim, toSavedClaim } from "./saved-claims.ts";

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
   * Called before each answer about a claim to a session, because that may hold a lock from then on.
   * @throws RequestError
   */
  readonly persistSession: (session: Session) => void;
  /** Why durable writes fail; null: they do not, as far as known. */
  readonly unhealthyReason: () => string | null;
}

export class LocalBackend implements Backend {
  readonly table: LockTable<Session>;
  readonly recoveryWindow: RecoveryWindow;
  readonly identity: StateEpoch | null;
  readonly #clock: Clock;
  readonly #batchClock: BatchClock;
  readonly #writeAhead: WriteAhead<Session> | null;
  readonly #log: Logger;
  readonly #eventLog: EventLog | null;
  readonly #ownership: ClaimOwnership;
  readonly #quotas: ClaimQuotas;
  readonly #holdDeadlines = new HoldDeadlines();
  readonly #pendingPlacements: PendingPlacements;
  readonly #claimLister: ClaimLister;
  readonly #persistSession: (session: Session) => void;
  readonly unhealthyReason: () => string | null;
  #onChange: () => void = () => undefined;
  #isDraining = false;

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
    this.#quotas = new ClaimQuotas(limits, options.formerLimits);
    this.table = new LockTable<Session>({
      sessionMs,
      tokenCeiling: durableState?.state.tokenCeiling ?? Number.POSITIVE_INFINITY,
      maxTombstones: limits.claims,
      observer: this.#eventLog ?? NO_OBSERVER,
      onAdded: ({ account, claim }) => this.#quotas.add(account, claim),
      onRemoved: (record) => this.#onRemoved(record),
    });
    const { now, micros } = this.#batchClock.read();
    this.table.advance({ now, micros: Math.max(findCeilingAtStart(recoveryPlan), micros) });
    this.#ownership = new ClaimOwnership(this.table);
    this.#writeAhead =
      durableState === null
        ? null
        : new WriteAhead({
            durableState,
            table: this.table,
            clock,
            toSavedClaim: (record) => this.#toSavedClaim(record),
            onChange: () => this.#onChange(),
          });
    this.#claimLister = new ClaimLister(this.table, clock);
    this.recoveryWindow = new RecoveryWindow({
      table: this.table,
      clock,
      plan: recoveryPlan,
      log,
      durableLog: this.#durableLog,
    });
  }

  /** Restores a claim loaded from disk. `owner`: null if it belongs to no session. */
  restore(saved: SavedClaim, owner: Session | null): void {
    const time = this.#batchClock.read();
    const record = restoreClaim(this.table, saved, owner, time);
    if (record === null) return;
    this.#writeAhead?.recordLease(saved.claim);
    if (saved.remainingMaxHoldMs !== undefined) this.#holdDeadlines.set(record, saved.remainingMaxHoldMs, time.now);
    if (owner !== null) linkToSession(record, owner);
  }

  /** The claim as it is to be saved now. */
  #toSavedClaim(record: ClaimRecord<Session>): SavedClaim {
    const now = this.#clock.now();
    return toSavedClaim(record, now, this.#holdDeadlines.remainingMs(record, now));
  }

  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  reportOutdatedState(): void {
    this.recoveryWindow.reportOutdatedState();
  }

  /** null: nothing is saved. */
  get #durableLog(): DurableLog | null {
    return this.#writeAhead?.durableLog ?? null;
  }

  get claimCount(): number {
    return this.table.records.size;
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
    this.#quotas.check(this.table, session, claim);
    this.#persistSession(session);
    const write = this.#writeAhead?.reserve(claim, micros);
    return write instanceof Promise ? this.#enqueueAfter(write, session, claim) : this.#enqueue(session, claim);
  }

  async #enqueueAfter(write: Promise<void>, session: Session, claim: Claim): Promise<Answer> {
    const isStillWanted = await this.#pendingPlacements.waitForWrite(claim.id, write);
    // A disconnected client retries after reconnecting; do not queue on its behalf meanwhile. The rules may have
    // changed, too.
    const isPlaceable = isStillWanted && session.sink !== null && canAcquire(session.principal, claim);
    if (!isPlaceable) return this.table.tombstones.noneAnswer(claim.id);
    if (this.#isDraining) throw drainingError();
    this.#quotas.check(this.table, session, claim);
    return this.#enqueue(session, claim);
  }

  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]> {
    const time = this.#batchClock.read();
    this.#persistSession(session);
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
    this.#persistSession(session);
    const reclaimAll = (): Answer[] => {
      const time = this.#batchClock.read();
      return this.recoveryWindow.reclaim(session, items, isLast, time, {
        hasRoom: (claim, isHeld) => this.#quotas.exceededOnReclaim(this.table, session, claim, isHeld) === null,
        adopt: (record) => {
          // how long it was held before is unknown, so the deadline starts again
          this.#holdDeadlines.start(record, session, time.now);
          this.#ownership.takeOwnershipAfterWrite(record, session, time);
        },
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

  setSuspended(session: Session, ids: readonly ClaimId[], isSuspended: boolean): void {
    for (const id of ids) {
      if (this.table.records.get(id)?.owner !== session) continue;
      if (isSuspended) this.table.suspendWaiter(id);
      else this.table.resumeWaiter(id);
    }
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
      this.#holdDeadlines.nextDueAt(),
      this.#claimLister.nextDueAt(),
      this.recoveryWindow.endsAt,
      this.#durableLog?.nextDueAt() ?? Number.POSITIVE_INFINITY,
    );
  }

  advance(now: number): void {
    const time = { now, micros: this.#batchClock.read().micros };
    this.table.advance(time);
    this.#holdDeadlines.advance(this.table, time);
    this.#claimLister.advance();
    this.recoveryWindow.endIfDone();
    this.#durableLog?.advance(now);
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
      if (record !== undefined && session !== null) this.#holdDeadlines.start(record, session, this.#clock.now());
      const sink = session?.sink;
      const persisted = record === undefined ? answer : (this.#writeAhead?.persist(record, answer) ?? answer);
      // its time is limited: the holders after it would have what it has left
      const pushed = record !== undefined && this.#holdDeadlines.has(record) ? withoutSuccessors(answer) : answer;
      if (!(persisted instanceof Promise) || answer.state === "none") sink?.pushAnswer(id, pushed);
      // the recheck makes the client ask again; by then the claim is in the journal
      if (persisted instanceof Promise) void persisted.then(ignore, ignore).then(() => sink?.pushRecheck(id));
    }
    this.#writeAhead?.raiseCeilingIfNeeded();
  }

  /** Stops granting and accepts no new claims. */
  drain(): void {
    this.#isDraining = true;
    this.recoveryWindow.drain();
  }

  /**
   * Saves the table for the next start, with these sessions. To be called after drain(), once.
   * @throws any error of the storage
   */
  async save(sessions: readonly SavedSession[]): Promise<void> {
    await this.#durableLog?.waitUntilIdle();
    const claims = [...this.table.records.values()].map((record) => this.#toSavedClaim(record));
    // claims that were not reclaimed yet are missing from the table: the next start continues the recovery for the rest
    // of its time
    const recovery = this.recoveryWindow.toSavedRecovery();
    const clean = { claims, sessions, recovery };
    await this.#durableLog?.finish({ tokenCeiling: findNextToken(this.table), clean });
  }

  #onRemoved(record: ClaimRecord<Session>): void {
    this.#ownership.onRemoved(record);
    this.#quotas.remove(record.account, record.claim);
    this.#holdDeadlines.remove(record);
    this.#writeAhead?.removeFromJournal(record);
  }

  /** Adds the pause to the answer of a waiting claim during recovery. */
  #withPause(answer: Answer): Answer {
    if (answer.state !== "waiting") return answer;
    const paused = this.recoveryWindow.pause;
    return paused === null ? answer : { ...answer, paused };
  }

  /**
   * The answer to a claim that does not wait and was not granted. During recovery that does not mean that a key is
   * locked: its holder may not have reclaimed yet.
   */
  #answerRefused(claim: Claim): Answer {
    const paused = !claim.wait && this.table.fitsBesideHolders(claim) ? this.recoveryWindow.pause : null;
    return paused === null ? this.table.tombstones.noneAnswer(claim.id) : { state: "none", paused };
  }

  #enqueue(session: Session, claim: Claim): MaybePromise<Answer> {
    const time = this.#batchClock.read();
    const record = this.table.enqueue(claim, { owner: session, account: session.principal.name }, time);
    if (record === null) return this.#answerRefused(claim);
    const answer = this.#withPause(this.table.answerFor(record));
    if (answer.state === "none") return answer;
    this.#ownership.takeOwnership(record, session);
    // its client is back
    this.table.resumeWaiter(claim.id);
    this.#holdDeadlines.start(record, session, record.placedAt);
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
