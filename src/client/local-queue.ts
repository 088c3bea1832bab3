/**
 * The waiters of this process for the same keys, their local holder, and the one claim that represents them at the store. A
 * request that cannot share a claim has a local queue of its own.
 *
 *   no claim   no local request wants the keys (then the queue is deleted), or the next claim is about to start
 *   pending    `activeClaim` is being requested or waits at the store, for the first waiter
 *   held       `localHold` is the local holder; the other requests wait
 *   idle       no request waits or holds here, and `activeClaim` is kept for the next request (cached-locks.ts)
 *
 * Invariants
 * - A local queue has at most one live claim. A lost claim leaves the queue at once: its local hold keeps it until the
 *   holder's code has ended, but local waiters can queue at the store without waiting for that code.
 * - A claim serves another request (idle, by a hand-off, or as its successor) only if, by clocks that are read for it, enough of the
 *   lease is left, the last call did not fail, the store has answered since its connection broke (a store that came back empty may
 *   have granted the lock to another client), and a token of the range is unused; an idle one also only if no recall has come. Else
 *   the claim is released, and the request makes a new one.
 */

import type { ClosedError, LostReason } from "../errors.ts";
import { DriverError, describePause, formatKeys, isFatalError, StorePausedError, wrapDriverError } from "../errors.ts";
import type { Claim, Traits } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import type { Counts } from "../util/counts.ts";
import { randomId } from "../util/ids.ts";
import { LinkedList } from "../util/linked-list.ts";
import type { SlotMap } from "../util/slot-map.ts";
import type { CachedLocks, CachingQueue } from "./cached-locks.ts";
import { CachedLock } from "./cached-locks.ts";
import type { DeferredStarts } from "./deferred-starts.ts";
import type { ActiveClaim, ClaimListener, Engine } from "./engine.ts";
import { nextRequest } from "./event-fields.ts";
import type { Events, FailedOutcome, LockEvent } from "./events.ts";
import type { HandoffLimits } from "./handoff-budget.ts";
import { HandoffBudget } from "./handoff-budget.ts";
import type { HandoffChain } from "./handoff-timing.ts";
import type { HoldQueue, RequestOrigin } from "./local-hold.ts";
import { LocalHold } from "./local-hold.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireSettings, ClientSettings } from "./options.ts";
import { toClaimSettings } from "./options.ts";
import type { QueueEvents } from "./queue-events.ts";
import type { QueueReader } from "./queue-reader.ts";
import { createTimeoutError } from "./timeout-error.ts";
import type { TokenFloors } from "./token-floors.ts";
import type { Waiter, WaiterQueue } from "./waiter.ts";

const MAX_RESTART_DELAY_MS = 1_000;
const NO_HANDOFFS: HandoffLimits = { handoffs: 1, handoffMs: 0 };

/** What the local queues of one client share. */
export interface ClientContext {
  readonly engine: Engine;
  readonly traits: Traits;
  readonly settings: ClientSettings;
  readonly events: Events;
  readonly queueEvents: QueueEvents;
  readonly tokenFloors: TokenFloors;
  readonly queueReader: QueueReader;
  readonly cachedLocks: CachedLocks;
  readonly handoffChain: HandoffChain;
  readonly deferredStarts: DeferredStarts;
  /** How many requests in strict order wait for each key. */
  readonly strictWaits: Counts;
  /** The queues that other requests can join, by name. */
  readonly queues: SlotMap<string, LocalQueue>;
}

export class LocalQueue implements ClaimListener, HoldQueue, WaiterQueue, CachingQueue {
  readonly context: ClientContext;
  readonly target: LockTarget;
  readonly #ttl: number | "session";
  /** The name in `context.queues`; null: other requests cannot join this queue. */
  readonly #name: string | null;
  readonly #waiters = new LinkedList<Waiter>();
  readonly #budget: HandoffBudget;
  #activeClaim: ActiveClaim | null = null;
  #localHold: LocalHold | null = null;
  /** The claim was idle at least once; it may be in use now. */
  #cachedLock: CachedLock | null = null;
  /** The store pushes it when another claim waits for the one of this queue. */
  readonly #isRecallable: boolean;
  /** Its one request is in strict order, of one exclusive key: its claim may have successors, and be one (successors.ts). */
  readonly #isStrict: boolean;
  /** Those of the waiters that do not wait: they stay until the store has answered whether they may have the lock. */
  #noWaitCount = 0;
  /** How many claims in a row have lost their queue entry. */
  #restarts = 0;

  constructor(
    context: ClientContext,
    target: LockTarget,
    ttl: number | "session",
    name: string | null,
    isStrict = false,
  ) {
    this.context = context;
    this.target = target;
    this.#ttl = ttl;
    this.#name = name;
    const { recall, reportsBreaks } = context.traits;
    this.#isRecallable = name !== null && recall !== false;
    this.#isStrict = isStrict;
    const suggestedTokens = name === null ? 1 : context.cachedLocks.suggestedTokens(name);
    const limits = name === null || reportsBreaks === false ? NO_HANDOFFS : context.settings;
    this.#budget = new HandoffBudget(limits, recall === "push", suggestedTokens);
  }

  enqueue(waiter: Waiter): void {
    const isBusy = this.#activeClaim !== null && !this.#isIdle;
    // join before queueing: adding the signal's listener may throw, and a waiter that cannot leave would block the others
    waiter.join(this);
    this.#waiters.push(waiter);
    if (waiter.noWait) this.#noWaitCount++;
    if (this.#isStrict) this.context.strictWaits.add(this.#key);
    this.context.queueEvents.emitRequested(waiter);
    // a listener of the event may have withdrawn the request, or requested the same keys and so started the claim
    if (waiter.queue === null) return;
    if (this.#isIdle) return this.#grantIdle(waiter.startedAt);
    if (!isBusy) return this.#activeClaim === null ? this.#startFor(waiter) : undefined;
    if (!waiter.noWait) return this.context.queueEvents.emitWaiting(waiter);
    // while the first call is under way the lock may be free, or the store down: unknown is not busy
    const activeClaim = this.#activeClaim as ActiveClaim;
    if (!isAsking(activeClaim)) this.#rejectBusy(waiter, activeClaim);
  }

  /**
   * Grants the lock at once, without a waiter, if its claim is idle and may be used; else null: the request must be enqueued.
   * Not for a client with listeners of the event "requested".
   */
  reuse(target: LockTarget, settings: AcquireSettings, now: number): LocalHold | null {
    const activeClaim = this.#isIdle ? this.#takeIdle(now) : null;
    if (activeClaim === null) return null;
    const origin = { target, settings, request: nextRequest() };
    const localHold = this.#hold(activeClaim, origin, this.#budget.takeToken(), now);
    this.context.queueEvents.emitAcquired(localHold, now);
    return localHold;
  }

  /** The user has cancelled the request. Without further requests the claim is released, too. */
  withdraw(waiter: Waiter, reason: unknown, outcome?: FailedOutcome): void {
    this.#removeWaiter(waiter);
    waiter.reject(reason, outcome);
  }

  timeOut(waiter: Waiter): void {
    if (this.#activeClaim !== null && isFailing(this.#activeClaim))
      return this.#rejectFailing(waiter, this.#activeClaim);
    this.#timeOutWaiter(waiter, this.context.engine.clock.now() - waiter.startedAt);
  }

  onGranted(now: number): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    if (activeClaim.state.status !== "held") return;
    this.#restarts = 0;
    const { token, tokenCount } = activeClaim.state;
    this.#budget.onGranted(token, tokenCount, now);
    if (activeClaim.isRecalled) this.#budget.onRecalled(now);
    this.#recordTokens(token, tokenCount);
    this.#grantNext(activeClaim, this.#budget.takeToken(), now);
    if (this.#noWaitCount > 0) this.#rejectNoWaits(activeClaim);
  }

  onNotGranted(): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    const head = this.#waiters.first;
    if (head !== null && !isFailing(activeClaim)) this.context.queueEvents.emitWaiting(head);
    this.#rejectNoWaits(activeClaim);
  }

  onRecalled(now: number): void {
    if (!this.#isIdle) return this.#budget.onRecalled(now);
    this.context.cachedLocks.recordRecall(this.#cachedLock as CachedLock, now);
    this.giveBack(now);
  }

  tokensToRenew(): number {
    if (this.#localHold?.isRenewed === false) this.#localHold.onRenewal();
    return this.#budget.tokensToRenew();
  }

  onBusy(): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    this.#activeClaim = null;
    this.#rejectNoWaits(activeClaim);
    this.#startNext();
  }

  onExpired(): void {
    this.#activeClaim = null;
    for (const waiter of this.#findNoWaits()) {
      const { keys } = waiter.target;
      this.#removeFromList(waiter);
      waiter.reject(
        new DriverError(`${this.context.engine.driver.name} answered too late for ${formatKeys(keys)}`, { keys }),
      );
    }
    this.#restarts++;
    this.#startNext();
  }

  onFailed(error: unknown): void {
    this.#activeClaim = null;
    // after a transient error the requests that wait keep waiting
    for (const waiter of isFatalError(error) ? [...this.#waiters] : this.#findNoWaits()) {
      const { keys } = waiter.target;
      this.#removeFromList(waiter);
      waiter.reject(wrapDriverError(error, `could not acquire ${formatKeys(keys)}`, keys));
    }
    this.#startNext();
  }

  onLost(reason: LostReason): void {
    const { engine, queueEvents } = this.context;
    const localHold = this.#localHold;
    const activeClaim = this.#activeClaim as ActiveClaim;
    this.#localHold = null;
    this.#leaveClaim();
    // it is not in use, so there is no code to wait for
    if (localHold === null) engine.release(activeClaim);
    else engine.scheduler.cancel(localHold);
    // before the loss is reported: a listener may request the same keys at once and must queue behind the waiters
    this.#startNext();
    if (localHold === null) return;
    queueEvents.emitLost(localHold, reason);
    localHold.lose(reason);
  }

  onUnconfirmed(): void {
    if (this.#localHold !== null) this.context.queueEvents.emitConfirmation("jeopardy", this.#localHold);
  }

  onConfirmed(): void {
    if (this.#localHold !== null) this.context.queueEvents.emitConfirmation("restored", this.#localHold);
  }

  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine, queueEvents } = this.context;
    const now = engine.clock.now();
    if (localHold === this.#localHold) engine.observe(now, localHold.activeClaim); // may find that the lock is lost
    engine.scheduler.cancel(localHold);
    if (localHold !== this.#localHold) {
      // lost before: its claim is no longer in this queue, and is released now that the holder's code has ended
      engine.release(localHold.activeClaim);
      return false;
    }
    const isHeld = localHold.activeClaim.isHeld(now);
    this.#localHold = null;
    const { activeClaim } = localHold;
    queueEvents.emitReleased(localHold);
    // a listener of the event may have withdrawn the last request, and with it the claim
    if (this.#activeClaim !== activeClaim) return isHeld;
    if (isHeld) this.#syncTokens(activeClaim);
    const isWanted = this.#waiters.size > 0 && this.#canServe(activeClaim, now);
    const isKept = isHeld && this.#waiters.size === 0 && this.#mayKeep(activeClaim, localHold.settings, now);
    if (isKept && this.#budget.hasTokens) return this.#keep(activeClaim, localHold.settings, now);
    const token = isHeld ? this.#budget.nextToken(now, isWanted || isKept) : null;
    if (token !== null) {
      this.#grantNext(activeClaim, token, now, true);
      queueEvents.emitHandedOff(this.#localHold as LocalHold | null);
      return true;
    }
    if (isHeld && this.#passToSuccessor(activeClaim, now)) return true;
    if (localHold.settings.cacheMs > 0) this.#rememberTokens();
    const released = this.#releaseToStore(activeClaim, isHeld, now);
    // as when it is handed off: its holder need not wait for the store, and can request the lock again behind those who wait here
    return isHeld && (isWanted || (this.#isStrict && this.context.strictWaits.has(this.#key))) ? true : released;
  }

  giveBack(now: number): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    this.#budget.endRange(!this.#budget.hasTokens);
    this.#rememberTokens();
    this.#leaveClaim();
    this.context.engine.release(activeClaim, undefined, now);
    this.#startNext(now);
  }

  /** Releases the claim although the local holder has not released it. */
  onReleaseAll(): void {
    const { engine, queueEvents } = this.context;
    const now = engine.clock.now();
    if (this.#isIdle) return this.giveBack(now);
    const localHold = this.#localHold;
    if (localHold === null) return;
    this.#localHold = null;
    engine.scheduler.cancel(localHold);
    void this.#releaseToStore(localHold.activeClaim, true, now);
    queueEvents.emitReleased(localHold);
    localHold.lose("released");
  }

  onClose(error: ClosedError): void {
    for (const waiter of [...this.#waiters]) this.withdraw(waiter, error);
  }

  transferOut(localHold: LocalHold): void {
    const { engine } = this.context;
    // released meanwhile: it is not this holder's claim any more
    if (localHold.isOpen) engine.forget(localHold.activeClaim);
    localHold.refCount = 0;
    if (localHold !== this.#localHold) return; // lost meanwhile: the queue has a new claim, or none
    this.#localHold = null;
    this.#leaveClaim();
    engine.scheduler.cancel(localHold);
    this.#startNext();
    this.context.queueEvents.emitDetached(localHold);
  }

  /** Takes over a claim that was made elsewhere and is held: from now on its events come here. */
  takeOver(activeClaim: ActiveClaim, token: bigint): LocalHold {
    activeClaim.listener = this;
    this.#activeClaim = activeClaim;
    const { engine, settings } = this.context;
    const origin = { target: this.target, request: nextRequest(), settings };
    const localHold = this.#hold(activeClaim, origin, token, engine.clock.now());
    this.#recordTokens(token, 1);
    this.context.queueEvents.emitAttached(localHold);
    return localHold;
  }

  /** Takes over the claim of another queue, which held the lock before: the own one, which waits, is withdrawn. */
  onTurn(activeClaim: ActiveClaim, token: bigint, now: number): void {
    const { engine, queueEvents } = this.context;
    const ownClaim = this.#activeClaim as ActiveClaim;
    activeClaim.listener = this;
    this.#activeClaim = activeClaim;
    engine.release(ownClaim, undefined, now);
    this.#grantNext(activeClaim, token, now, true);
    queueEvents.emitHandedOff(this.#localHold);
  }

  describe(localHold: LocalHold): LockEvent & { readonly token: bigint } {
    return this.context.queueEvents.describe(localHold);
  }

  onFailedRequest(waiter: Waiter, error: unknown, outcome: FailedOutcome): void {
    this.context.queueEvents.emitFailed(waiter, error, outcome);
  }

  /** A request that is aborted in the turn in which it was made sends nothing. */
  #startFor({ settings, startedAt }: Waiter): void {
    if (settings.signal === undefined) return this.#startIfNone(startedAt);
    this.context.deferredStarts.add(() => this.#startIfNone(startedAt));
  }

  #startIfNone(now: number): void {
    // one of them may be that of this queue
    this.context.deferredStarts.flush();
    if (this.#waiters.size > 0 && this.#activeClaim === null) this.#startClaim(now);
  }

  #startClaim(now: number): void {
    const head = this.#waiters.first as Waiter;
    const { engine, settings, tokenFloors, traits, cachedLocks } = this.context;
    const isCached = this.#name !== null && head.settings.cacheMs > 0;
    const claim: Claim = {
      id: randomId(),
      locks: this.target.locks,
      ttlMs: this.#ttl,
      tokenCount: this.#budget.tokensToRequest(this.#waiters.size, isCached),
      floor: tokenFloors.floor(this.target.locks),
      wait: !head.noWait,
      label: head.settings.label,
      recall: this.#isRecallable,
      successors: this.#isStrict,
    };
    cachedLocks.giveBackFor(claim.locks, now);
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, engine.random(), MAX_RESTART_DELAY_MS);
    const claimSettings = toClaimSettings(this.#ttl, claim.wait, traits, settings);
    this.#activeClaim = engine.start(claim, claimSettings, this, now, delayMs);
  }

  #grantNext(activeClaim: ActiveClaim, token: bigint, now: number, isHandoff = false): void {
    const waiter = this.#waiters.first as Waiter;
    this.#removeFromList(waiter);
    // in strict order no other request can use the claim, so there is nothing to wait for
    const isLast = this.#waiters.size === 0 && this.#name !== null;
    const timing = isHandoff ? this.context.handoffChain.chooseTiming(now, isLast) : "now";
    const localHold = this.#hold(activeClaim, waiter, token, now);
    // settle before emitting: a listener may abort the signal, which must no longer affect this request
    waiter.grant(localHold, timing);
    this.context.queueEvents.emitAcquired(localHold, waiter.startedAt);
  }

  /** In strict order: hands the lock on to the request of this client whose claim is the next one at the store, if there is one. */
  #passToSuccessor(activeClaim: ActiveClaim, now: number): boolean {
    if (!this.#canServe(activeClaim, now)) return false;
    const next = this.context.engine.takeSuccessor(activeClaim);
    if (next === null) return false;
    this.#leaveClaim();
    next.successor.listener.onTurn(activeClaim, next.token, now);
    return true;
  }

  /** May another request use the claim? Not while a detach is under way, which may also hand out a reference. */
  #canServe(activeClaim: ActiveClaim, now: number): boolean {
    const { state, settings, isDetaching } = activeClaim;
    if (state.status !== "held" || state.callState.failures > 0 || isDetaching) return false;
    return state.deadline - now > 0.45 * settings.ttlMs && this.context.engine.isVerified(activeClaim);
  }

  get #isIdle(): boolean {
    return this.#cachedLock?.isIdle === true;
  }

  /** May the claim be kept for the next request, now that it is not in use? */
  #mayKeep(activeClaim: ActiveClaim, { cacheMs }: AcquireSettings, now: number): boolean {
    if (cacheMs === 0 || this.#name === null || activeClaim.isRecalled) return false;
    // a process that is cut off would keep a claim that silence does not end
    if (activeClaim.settings.survivesSilence) return false;
    return this.#canServe(activeClaim, now) && this.context.cachedLocks.allows(this.#name, now);
  }

  #keep(activeClaim: ActiveClaim, { cacheMs }: AcquireSettings, now: number): true {
    const { cachedLocks } = this.context;
    if (this.#cachedLock === null) {
      this.#cachedLock = new CachedLock(cachedLocks, this, this.#name as string, activeClaim);
      cachedLocks.add(this.#cachedLock);
    }
    this.#cachedLock.becomeIdle(now, cacheMs);
    return true;
  }

  /** A waiter has come while the claim is idle. */
  #grantIdle(now: number): void {
    const activeClaim = this.#takeIdle(now);
    if (activeClaim !== null) this.#grantNext(activeClaim, this.#budget.takeToken(), now);
  }

  /** Returns the claim, which is idle, if a request may use it now; null: it is over, and waiters have a new one. */
  #takeIdle(now: number): ActiveClaim | null {
    const activeClaim = this.#activeClaim as ActiveClaim;
    // a machine that slept may have lost it; a listener of that event may have used or ended it
    this.context.engine.observe(now, activeClaim);
    if (!this.#isIdle || this.#activeClaim !== activeClaim) return null;
    this.#syncTokens(activeClaim);
    const isUsable = activeClaim.isHeld(now) && this.#canServe(activeClaim, now) && !activeClaim.isRecalled;
    if (isUsable && this.#budget.hasTokens) {
      (this.#cachedLock as CachedLock).becomeUsed();
      return activeClaim;
    }
    this.giveBack(now);
    return null;
  }

  /** The claim is not the one of this queue any more. */
  #leaveClaim(): void {
    this.#activeClaim = null;
    if (this.#cachedLock === null) return;
    this.context.cachedLocks.remove(this.#cachedLock);
    this.#cachedLock = null;
  }

  /** Takes over the length of the token range from the last answer. */
  #syncTokens({ state }: ActiveClaim): void {
    // without a name it has one token, and its range is that of its grant
    if (this.#name === null || state.status !== "held" || state.tokenCount === this.#budget.tokenCount) return;
    this.#budget.setTokenCount(state.tokenCount);
    this.#recordTokens(state.token, state.tokenCount);
  }

  /** The store must not grant one of these tokens again. */
  #recordTokens(token: bigint, tokenCount: number): void {
    this.context.tokenFloors.record(this.target.locks, token + BigInt(tokenCount - 1));
  }

  #rememberTokens(): void {
    if (this.#name !== null) this.context.cachedLocks.recordTokens(this.#name, this.#budget.suggestedCount);
  }

  #hold(activeClaim: ActiveClaim, origin: RequestOrigin, token: bigint, now: number): LocalHold {
    const localHold = new LocalHold(this, activeClaim, origin, token, now);
    this.#localHold = localHold;
    const { maxHoldMs } = origin.settings;
    if (maxHoldMs < Number.POSITIVE_INFINITY) this.context.engine.scheduler.schedule(localHold, now + maxHoldMs);
    return localHold;
  }

  /** Releases the claim and, if requests wait here, starts the next claim in the same turn. */
  #releaseToStore(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    this.#leaveClaim();
    const { engine } = this.context;
    const expiresAt = activeClaim.state.status === "held" ? activeClaim.state.deadline + engine.suspendedMs : 0;
    const result = new Promise<boolean>((resolve) => {
      // If the lease was valid by the local clock, the lock counts as held, unless the store answers within the lease that
      // the claim did not exist. If it was not, the lock counts as lost, unless the store answers that the claim existed.
      const onReleased = (existed: boolean | null): void =>
        resolve(isHeld ? existed !== false || engine.elapsedMs(engine.observe()) >= expiresAt : existed === true);
      engine.release(activeClaim, onReleased, now);
    });
    this.#startNext(now);
    return result;
  }

  #startNext(now?: number): void {
    // a listener of an event has requested the same keys, and so started the claim
    if (this.#activeClaim !== null) return;
    if (this.#waiters.size > 0) this.#startIfNone(now ?? this.context.engine.clock.now());
    else if (this.#name !== null) this.context.queues.delete(this.#name);
  }

  get #key(): string {
    return this.target.locks[0].key;
  }

  #removeFromList(waiter: Waiter): void {
    this.#waiters.remove(waiter);
    if (waiter.noWait) this.#noWaitCount--;
    if (this.#isStrict) this.context.strictWaits.remove(this.#key);
  }

  #removeWaiter(waiter: Waiter): void {
    this.#removeFromList(waiter);
    if (this.#waiters.size > 0 || this.#localHold !== null || this.#isIdle) return;
    const activeClaim = this.#activeClaim;
    this.#leaveClaim();
    if (activeClaim !== null) this.context.engine.release(activeClaim);
    this.#startNext();
  }

  /** The store did not answer the last call about the claim, so nothing is known about the lock. */
  #rejectFailing(waiter: Waiter, { failure }: ActiveClaim): void {
    const { keys } = waiter.target;
    this.withdraw(waiter, wrapDriverError(failure, `could not acquire ${formatKeys(keys)}`, keys));
  }

  #findNoWaits(): Waiter[] {
    return [...this.#waiters].filter(({ noWait }) => noWait);
  }

  /** The store has answered about the claim, which is not theirs. */
  #rejectNoWaits(activeClaim: ActiveClaim): void {
    // a listener of the event of one may have withdrawn another
    for (const waiter of this.#findNoWaits()) if (waiter.queue === this) this.#rejectBusy(waiter, activeClaim);
  }

  /** Rejects a no-wait request: busy, unless no local holder has the lock and the store is paused or does not answer. */
  #rejectBusy(waiter: Waiter, activeClaim: ActiveClaim): void {
    if (isFailing(activeClaim)) return this.#rejectFailing(waiter, activeClaim);
    const pause =
      activeClaim.state.status === "held" ? undefined : activeClaim.currentPause(this.context.engine.clock.now());
    if (pause === undefined) return this.#timeOutWaiter(waiter, 0);
    const { keys } = waiter.target;
    this.withdraw(
      waiter,
      new StorePausedError(`cannot grant ${formatKeys(keys)}: ${describePause(pause)}`, pause, { keys }),
    );
  }

  /** Removes the request from the queue and rejects it once the lookup of the current holder has ended. */
  #timeOutWaiter(waiter: Waiter, waitedMs: number): void {
    if (waiter.isTry) return this.withdraw(waiter, null);
    let localAhead = this.#localHold === null ? 0 : 1;
    for (let ahead = waiter.previous; ahead !== null; ahead = ahead.previous) localAhead++;
    const { locks, keys } = waiter.target;
    const id = this.#activeClaim?.claim.id ?? null;
    const paused = this.#activeClaim?.currentPause(this.context.engine.clock.now());
    const isAnswered = this.#activeClaim?.state.status !== "asking";
    // start the lookup before the claim's own entry is released, so that it counts the claims ahead of it
    const error = createTimeoutError(this.context.queueReader, {
      ...{ locks, keys, id, localAhead, waitedMs },
      ...{ paused, isAnswered },
    });
    this.#removeWaiter(waiter);
    waiter.leave();
    void error.then((timeout) => waiter.reject(timeout));
  }
}

/** Nothing is known of the claim: its first call is under way. */
function isAsking({ state }: ActiveClaim): boolean {
  return state.status === "asking" && state.callState.failures === 0;
}

function isFailing({ state }: ActiveClaim): boolean {
  return (state.status === "asking" || state.status === "waiting") && state.callState.failures > 0;
}
