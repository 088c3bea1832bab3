/**
 * The waiters of this process for the same keys, their local holder, and the one claim that represents them at the store. A
 * request that cannot share a claim has a local queue of its own.
 *
 *   no claim   no local request wants the keys (then the queue is deleted), or the next claim is about to start
 *   pending    the claim is being requested or waits at the store, for the first waiter
 *   granted    a local hold has the lock, and the other requests wait; or it is idle, and none does (grant.ts)
 *
 * Invariants
 * - A local queue has at most one live claim, pending or granted. A lost claim leaves the queue at once: its local hold keeps it until the
 *   holder's code has ended, but local waiters can queue at the store without waiting for that code.
 * - A claim serves another request (idle, by a hand-off, or as its successor) only if, by clocks that are read for it, enough of the
 *   lease is left, the last call did not fail, the store has answered since its connection broke (a store that came back empty may
 *   have granted the lock to another client), and a token of the range is unused; an idle one also only if no recall has come. Else
 *   the claim is released, and the request makes a new one.
 */

import type { ClosedError } from "../errors.ts";
import { describePause, formatKeys, isFatalError, StoreError, StorePausedError, wrapStoreError } from "../errors.ts";
import type { Claim, Traits } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import type { Counts } from "../util/counts.ts";
import { randomId } from "../util/ids.ts";
import { LinkedList } from "../util/linked-list.ts";
import type { SlotMap } from "../util/slot-map.ts";
import type { CachedLocks } from "./cached-locks.ts";
import type { DeferredStarts } from "./deferred-starts.ts";
import type { ActiveClaim, ClaimListener, Engine, ListenerEffect } from "./engine.ts";
import { nextRequest } from "./event-fields.ts";
import type { Events, FailedOutcome } from "./events.ts";
import type { HandoffLimits } from "./grant.ts";
import { Grant, tokensToRequest } from "./grant.ts";
import type { HandoffChain } from "./handoff-chain.ts";
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
const NO_HANDOFFS: HandoffLimits = { handoffs: 1, handoffMs: 0, isRecallable: false };

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
  readonly handoffLimits: HandoffLimits;
  /** How many requests in strict order wait for each key. */
  readonly strictWaits: Counts;
  /** The queues that other requests can join, by name. */
  readonly queues: SlotMap<string, LocalQueue>;
}

export class LocalQueue implements ClaimListener, HoldQueue, WaiterQueue {
  readonly context: ClientContext;
  readonly target: LockTarget;
  readonly #ttl: number | "session";
  /** The name in `context.queues`; null: other requests cannot join this queue. */
  readonly #name: string | null;
  readonly #waiters = new LinkedList<Waiter>();
  readonly #limits: HandoffLimits;
  /** How many tokens the last range suggests for the next one. */
  #suggestedCount: number;
  #pendingClaim: ActiveClaim | null = null;
  #grant: Grant | null = null;
  /** Its one request is in strict order, of one exclusive key: its claim may have successors, and be one (successors.ts). */
  readonly #isStrict: boolean;
  /** How many of the waiters have `wait: false`: they stay until the store has answered whether they may have the lock. */
  #tryCount = 0;
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
    this.#isStrict = isStrict;
    this.#suggestedCount = name === null ? 1 : context.cachedLocks.suggestedTokens(name);
    this.#limits = name === null || context.traits.reportsBreaks === false ? NO_HANDOFFS : context.handoffLimits;
  }

  enqueue(waiter: Waiter): void {
    const isBusy = this.#hasClaim && !this.#isIdle;
    // join before queueing: adding the signal's listener may throw, and a waiter that cannot leave would block the others
    waiter.join(this);
    this.#waiters.push(waiter);
    if (!waiter.wait) this.#tryCount++;
    if (this.#isStrict) this.context.strictWaits.add(this.#key);
    this.context.queueEvents.emitRequested(waiter);
    // a listener of the event may have withdrawn the request, or requested the same keys and so started the claim
    if (waiter.queue === null) return;
    if (this.#isIdle) return this.#grantIdle(waiter.startedAt);
    if (!isBusy) return this.#hasClaim ? undefined : this.#startFor(waiter);
    if (waiter.wait) return this.context.queueEvents.emitWaiting(waiter);
    // while the first call is under way the lock may be free, or the store down: unknown is not busy
    if (this.#pendingClaim === null || !isAsking(this.#pendingClaim)) this.#rejectBusy(waiter, this.#pendingClaim);
  }

  /**
   * Grants the lock at once, without a waiter, if its claim is idle and may be used; else null: the request must be enqueued.
   * Not for a client with listeners of the event "requested".
   */
  reuse(target: LockTarget, settings: AcquireSettings, now: number): LocalHold | null {
    const grant = this.#takeIdle(now);
    if (grant === null) return null;
    const localHold = this.#hold(grant, { target, settings, request: nextRequest() }, grant.takeToken(), now);
    this.context.queueEvents.emitAcquired(localHold, now);
    return localHold;
  }

  /** The user has cancelled the request. Without further requests the claim is released, too. */
  withdraw(waiter: Waiter, reason: unknown, outcome?: FailedOutcome): void {
    this.#removeWaiter(waiter);
    waiter.reject(reason, outcome);
  }

  timeOut(waiter: Waiter): void {
    if (this.#pendingClaim !== null && isFailing(this.#pendingClaim))
      return this.#rejectFailing(waiter, this.#pendingClaim);
    this.#timeOutWaiter(waiter, this.context.engine.clock.now() - waiter.startedAt);
  }

  onEffect(effect: ListenerEffect, now: number): void {
    switch (effect) {
      case "grant":
        return this.#onGranted(now);
      case "wait":
        return this.#onNotGranted();
      case "refuse":
      case "expire":
      case "reject":
        return this.#onRefused(effect);
      case "lose":
        return this.#onLost();
      case "jeopardy":
      case "restored":
        if (this.#grant?.holder != null) this.context.queueEvents.emitConfirmation(effect, this.#grant.holder);
        return;
      case "recall":
        return this.#onRecalled(now);
    }
  }

  tokensToRenew(): number {
    const grant = this.#grant as Grant;
    if (grant.holder?.isRenewed === false) grant.holder.onRenewal();
    return grant.tokensToRenew();
  }

  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine, queueEvents, strictWaits } = this.context;
    const { activeClaim, settings } = localHold;
    const now = engine.clock.now();
    if (localHold === this.#grant?.holder) engine.observe(now, activeClaim); // may find that the lock is lost
    engine.scheduler.cancel(localHold);
    const grant = this.#grant;
    if (grant === null || grant.holder !== localHold) {
      // lost before: its claim is no longer in this queue, and is released now that the holder's code has ended
      engine.release(activeClaim);
      return false;
    }
    const isHeld = activeClaim.isHeld(now);
    grant.holder = null;
    queueEvents.emitReleased(localHold);
    // a listener of the event may have withdrawn the last request, and with it the claim
    if (this.#grant !== grant) return isHeld;
    const isUsable = isHeld && engine.isReusable(activeClaim, now);
    const isWantedHere = isUsable && this.#waiters.size > 0;
    if (isHeld) this.#syncTokens(grant);
    const mayKeep = isUsable && !isWantedHere && this.#mayKeep(activeClaim, settings, now);
    switch (isHeld ? grant.next(now, isWantedHere, mayKeep) : "end") {
      case "keep":
        grant.becomeIdle(now, settings.cacheMs);
        return true;
      case "handOn":
        this.#handOn(grant, grant.takeToken(), now);
        return true;
      case "end": {
        if (isUsable && this.#passToSuccessor(grant, now)) return true;
        if (isHeld) this.#suggestedCount = grant.suggestedCount;
        if (settings.cacheMs > 0) this.#rememberTokens();
        const released = this.#releaseToStore(activeClaim, isHeld, now);
        // its holder need not wait for the store, and can request the lock again behind those who wait here
        return isWantedHere || (isHeld && this.#isStrict && strictWaits.has(this.#key)) ? true : released;
      }
    }
  }

  giveBack(now: number): void {
    const grant = this.#grant as Grant;
    grant.suggestTokens(!grant.hasTokens);
    this.#suggestedCount = grant.suggestedCount;
    this.#rememberTokens();
    this.#leaveGrant(grant);
    this.context.engine.release(grant.activeClaim, undefined, now);
    this.#startNext(now);
  }

  /** Releases the claim although the local holder has not released it. */
  onReleaseAll(): void {
    const { engine, queueEvents } = this.context;
    const now = engine.clock.now();
    if (this.#isIdle) return this.giveBack(now);
    const localHold = this.#grant?.holder;
    if (localHold == null) return;
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
    const grant = this.#grant;
    if (localHold !== grant?.holder) return; // lost meanwhile: the queue has a new claim, or none
    this.#leaveGrant(grant);
    engine.scheduler.cancel(localHold);
    this.#startNext();
    this.context.queueEvents.emitDetached(localHold);
  }

  /** Takes over a claim that was made elsewhere and is held: from now on its events come here. */
  takeOver(activeClaim: ActiveClaim, token: bigint): LocalHold {
    const { engine, settings } = this.context;
    const now = engine.clock.now();
    activeClaim.listener = this;
    this.#grant = this.#createGrant(activeClaim, now);
    const origin = { target: this.target, request: nextRequest(), settings };
    const localHold = this.#hold(this.#grant, origin, token, now);
    this.#recordTokens(token, 1);
    this.context.queueEvents.emitAttached(localHold);
    return localHold;
  }

  /** Takes over the claim of another queue, whose holder has released it: the own one, which waits, is withdrawn. */
  onSuccession(activeClaim: ActiveClaim, token: bigint, now: number): void {
    const ownClaim = this.#pendingClaim as ActiveClaim;
    const grant = this.#createGrant(activeClaim, now);
    activeClaim.listener = this;
    this.#pendingClaim = null;
    this.#grant = grant;
    this.context.engine.release(ownClaim, undefined, now);
    this.#handOn(grant, token, now);
  }

  #onGranted(now: number): void {
    const activeClaim = this.#pendingClaim as ActiveClaim;
    if (activeClaim.state.status !== "held") return;
    this.#restarts = 0;
    const { token, tokenCount } = activeClaim.state;
    const grant = this.#createGrant(activeClaim, now);
    this.#pendingClaim = null;
    this.#grant = grant;
    this.#recordTokens(token, tokenCount);
    this.#grantNext(grant, grant.takeToken(), now);
    if (this.#tryCount > 0) this.#rejectTries(null);
  }

  #onNotGranted(): void {
    const pendingClaim = this.#pendingClaim as ActiveClaim;
    const head = this.#waiters.first;
    if (head !== null && !isFailing(pendingClaim)) this.context.queueEvents.emitWaiting(head);
    this.#rejectTries(pendingClaim);
  }

  #onRecalled(now: number): void {
    const grant = this.#grant as Grant;
    if (!grant.isIdle) return grant.becomeWanted(now);
    this.context.cachedLocks.recordRecall(grant, now);
    this.giveBack(now);
  }

  /** The claim is over before it was granted: its keys were busy, it has lost its place in the store's queue, or the store failed. */
  #onRefused(effect: "refuse" | "expire" | "reject"): void {
    const { driver } = this.context.engine;
    const pendingClaim = this.#pendingClaim as ActiveClaim;
    this.#pendingClaim = null;
    if (effect === "refuse") this.#rejectTries(pendingClaim);
    if (effect === "expire") {
      this.#rejectWith(
        this.#listTries(),
        (keys) => new StoreError(`${driver.name} answered too late for ${formatKeys(keys)}`, { keys }),
      );
      this.#restarts++;
    }
    if (effect === "reject") {
      const { failure } = pendingClaim;
      // after a transient error the requests that wait keep waiting
      const rejected = isFatalError(failure) ? [...this.#waiters] : this.#listTries();
      this.#rejectWith(rejected, (keys) => wrapStoreError(failure, `could not acquire ${formatKeys(keys)}`, keys));
    }
    this.#startNext();
  }

  #onLost(): void {
    const { engine, queueEvents } = this.context;
    const grant = this.#grant as Grant;
    const { activeClaim, holder } = grant;
    const reason = activeClaim.state.status === "lost" ? activeClaim.state.reason : "unknown";
    this.#leaveGrant(grant);
    // it is not in use, so there is no code to wait for
    if (holder === null) engine.release(activeClaim);
    else engine.scheduler.cancel(holder);
    // before the loss is reported: a listener may request the same keys at once and must queue behind the waiters
    this.#startNext();
    if (holder === null) return;
    queueEvents.emitLost(holder, reason);
    holder.lose(reason);
  }

  /** A request that is aborted in the turn in which it was made sends nothing. */
  #startFor({ settings, startedAt }: Waiter): void {
    if (settings.signal === undefined) return this.#startIfNone(startedAt);
    this.context.deferredStarts.add(() => this.#startIfNone(startedAt));
  }

  #startIfNone(now: number): void {
    // one of them may be that of this queue
    this.context.deferredStarts.flush();
    if (this.#waiters.size > 0 && !this.#hasClaim) this.#startClaim(now);
  }

  #startClaim(now: number): void {
    const head = this.#waiters.first as Waiter;
    const { engine, settings, tokenFloors, traits, cachedLocks } = this.context;
    const isCached = this.#name !== null && head.settings.cacheMs > 0;
    const claim: Claim = {
      id: randomId(),
      locks: this.target.locks,
      ttlMs: this.#ttl,
      tokenCount: tokensToRequest(this.#limits, this.#waiters.size, this.#suggestedCount, isCached),
      floor: tokenFloors.floor(this.target.locks),
      wait: head.wait,
      label: head.settings.label,
      recall: this.#name !== null && traits.recall !== false,
      successors: this.#isStrict,
    };
    cachedLocks.giveBackFor(claim.locks, now);
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, engine.random(), MAX_RESTART_DELAY_MS);
    const claimSettings = toClaimSettings(this.#ttl, claim.wait, traits, settings);
    this.#pendingClaim = engine.start(claim, claimSettings, this, now, delayMs);
  }

  #createGrant(activeClaim: ActiveClaim, now: number): Grant {
    return new Grant(this, this.context.cachedLocks, this.#name, this.#limits, activeClaim, now);
  }

  #grantNext(grant: Grant, token: bigint, now: number, isHandoff = false): void {
    const waiter = this.#waiters.first as Waiter;
    this.#removeFromList(waiter);
    // in strict order no other request can use the claim, so there is nothing to wait for
    const isLast = this.#waiters.size === 0 && this.#name !== null;
    const delay = isHandoff ? this.context.handoffChain.delay(now, isLast) : null;
    const localHold = this.#hold(grant, waiter, token, now);
    // settle before emitting: a listener may abort the signal, which must no longer affect this request
    waiter.grant(localHold, delay);
    this.context.queueEvents.emitAcquired(localHold, waiter.startedAt);
  }

  #handOn(grant: Grant, token: bigint, now: number): void {
    this.#grantNext(grant, token, now, true);
    this.context.queueEvents.emitHandedOff(this.#grant?.holder ?? null);
  }

  /** In strict order: hands the lock on to the request of this client whose claim is the next one at the store, if there is one. */
  #passToSuccessor(grant: Grant, now: number): boolean {
    const next = this.context.engine.takeSuccessor(grant.activeClaim);
    if (next === null) return false;
    this.#leaveGrant(grant);
    next.successor.listener.onSuccession(grant.activeClaim, next.token, now);
    return true;
  }

  get #hasClaim(): boolean {
    return this.#pendingClaim !== null || this.#grant !== null;
  }

  get #isIdle(): boolean {
    return this.#grant?.isIdle === true;
  }

  /** May the claim, which is usable, be kept for the next request, now that none waits? */
  #mayKeep(activeClaim: ActiveClaim, { cacheMs }: AcquireSettings, now: number): boolean {
    if (cacheMs === 0 || this.#name === null || activeClaim.isWanted) return false;
    // a process that is cut off would keep a claim that silence does not end
    if (activeClaim.settings.survivesSilence) return false;
    return this.context.cachedLocks.allows(this.#name, now);
  }

  /** A waiter has come while the claim is idle. */
  #grantIdle(now: number): void {
    const grant = this.#takeIdle(now);
    if (grant !== null) this.#grantNext(grant, grant.takeToken(), now);
  }

  /** Returns the idle grant if a request may use it now; null: there is none any more, and waiters have a new claim. */
  #takeIdle(now: number): Grant | null {
    const grant = this.#grant;
    if (grant === null || !grant.isIdle) return null;
    const { engine } = this.context;
    // a machine that slept may have lost it; a listener of that event may have used or ended it
    engine.observe(now, grant.activeClaim);
    if (!grant.isIdle) return null;
    this.#syncTokens(grant);
    const { activeClaim } = grant;
    const isUsable = activeClaim.isHeld(now) && engine.isReusable(activeClaim, now) && !activeClaim.isWanted;
    if (isUsable && grant.hasTokens) {
      grant.becomeUsed();
      return grant;
    }
    this.giveBack(now);
    return null;
  }

  /** The claim is not the one of this queue any more. */
  #leaveGrant(grant: Grant): void {
    this.#grant = null;
    grant.holder = null;
    grant.end();
  }

  /** Takes over the length of the token range from the last answer. */
  #syncTokens(grant: Grant): void {
    const { state } = grant.activeClaim;
    // without a name it has one token, and its range is that of its grant
    if (this.#name === null || state.status !== "held" || state.tokenCount === grant.tokenCount) return;
    grant.setTokenCount(state.tokenCount);
    this.#recordTokens(state.token, state.tokenCount);
  }

  /** The store must not grant one of these tokens again. */
  #recordTokens(token: bigint, tokenCount: number): void {
    this.context.tokenFloors.record(this.target.locks, token + BigInt(tokenCount - 1));
  }

  #rememberTokens(): void {
    if (this.#name !== null) this.context.cachedLocks.recordTokens(this.#name, this.#suggestedCount);
  }

  #hold(grant: Grant, origin: RequestOrigin, token: bigint, now: number): LocalHold {
    const localHold = new LocalHold(this, grant.activeClaim, origin, token, now);
    grant.holder = localHold;
    const { maxHoldMs } = origin.settings;
    if (maxHoldMs < Number.POSITIVE_INFINITY) this.context.engine.scheduler.schedule(localHold, now + maxHoldMs);
    return localHold;
  }

  /** Releases the claim and, if requests wait here, starts the next claim in the same turn. */
  #releaseToStore(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    if (this.#grant !== null) this.#leaveGrant(this.#grant);
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
    if (this.#hasClaim) return;
    if (this.#waiters.size > 0) this.#startIfNone(now ?? this.context.engine.clock.now());
    else if (this.#name !== null) this.context.queues.delete(this.#name);
  }

  get #key(): string {
    return this.target.locks[0].key;
  }

  #removeFromList(waiter: Waiter): void {
    this.#waiters.remove(waiter);
    if (!waiter.wait) this.#tryCount--;
    if (this.#isStrict) this.context.strictWaits.remove(this.#key);
  }

  #removeWaiter(waiter: Waiter): void {
    this.#removeFromList(waiter);
    if (this.#waiters.size > 0 || this.#grant?.holder != null || this.#isIdle) return;
    const activeClaim = this.#pendingClaim ?? this.#grant?.activeClaim;
    this.#pendingClaim = null;
    if (this.#grant !== null) this.#leaveGrant(this.#grant);
    if (activeClaim !== undefined) this.context.engine.release(activeClaim);
    this.#startNext();
  }

  /** The store did not answer the last call about the claim, so nothing is known about the lock. */
  #rejectFailing(waiter: Waiter, { failure }: ActiveClaim): void {
    const { keys } = waiter.target;
    this.withdraw(waiter, wrapStoreError(failure, `could not acquire ${formatKeys(keys)}`, keys));
  }

  #listTries(): Waiter[] {
    return [...this.#waiters].filter(({ wait }) => !wait);
  }

  #rejectWith(waiters: readonly Waiter[], toError: (keys: readonly string[]) => Error): void {
    for (const waiter of waiters) {
      this.#removeFromList(waiter);
      waiter.reject(toError(waiter.target.keys));
    }
  }

  /** The store has answered about the claim, which is not theirs. */
  #rejectTries(pendingClaim: ActiveClaim | null): void {
    // a listener of the event of one may have withdrawn another
    for (const waiter of this.#listTries()) if (waiter.queue === this) this.#rejectBusy(waiter, pendingClaim);
  }

  /**
   * Rejects a request with `wait: false`: busy, unless the store is paused or does not answer.
   * @param pendingClaim null: a local holder has the lock
   */
  #rejectBusy(waiter: Waiter, pendingClaim: ActiveClaim | null): void {
    if (pendingClaim !== null && isFailing(pendingClaim)) return this.#rejectFailing(waiter, pendingClaim);
    const pause = pendingClaim?.currentPause(this.context.engine.clock.now());
    if (pause === undefined) return this.#timeOutWaiter(waiter, 0);
    const { keys } = waiter.target;
    this.withdraw(
      waiter,
      new StorePausedError(`cannot grant ${formatKeys(keys)}: ${describePause(pause)}`, pause, { keys }),
    );
  }

  /** Removes the request from the queue and rejects it once the lookup of the current holder has ended. */
  #timeOutWaiter(waiter: Waiter, waitedMs: number): void {
    if (waiter.settings.isNullIfBusy === true) return this.withdraw(waiter, null);
    let localAhead = this.#grant?.holder == null ? 0 : 1;
    for (let ahead = waiter.previous; ahead !== null; ahead = ahead.previous) localAhead++;
    const { locks, keys } = waiter.target;
    const activeClaim = this.#pendingClaim ?? this.#grant?.activeClaim;
    const id = activeClaim?.claim.id ?? null;
    const paused = activeClaim?.currentPause(this.context.engine.clock.now());
    const isAnswered = activeClaim?.state.status !== "asking";
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
