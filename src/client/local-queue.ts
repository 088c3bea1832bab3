/**
 * The waiters of this process for the same keys, and what they have of the lock, which is one state:
 *
 *   none      no claim: no local request wants the keys (then the queue is deleted), or the next one is about to start
 *   pending   a claim is being requested, or waits at the store, on behalf of the first waiter
 *   a grant   the claim is held. Of the states of the grant (grant.ts): "used", a local hold has the lock, and the
 *             others wait; "between", for a moment, two users; "idle", no request waits
 *
 *   none -> pending      #startClaim(), for the first waiter
 *   pending -> a grant   #onGranted()
 *   pending -> none      #onRefused(); #removeWaiter(), if no request is left
 *   a grant -> none      #end(), after the last user; #onLost(); giveBack(), by releaseAll(), or of one that is idle;
 *                        transferOut(), detached; #removeWaiter(), "between" and no request is left
 *   in strict order      #passTo(): the grant goes to the queue of its successor, whose own claim, pending, ends
 *   none -> a grant      takeOver(), attached
 *
 * Between two users of the lock in this process:
 *
 *   1  the first one calls release(). The clocks are read, which may show that the lock was lost meanwhile
 *   2  the grant decides (Grant.next()) what follows
 *
 *   handOn       the first waiter gets a local hold of its own, under the same claim, with the next token. Its promise
 *                resolves in this turn of the event loop, or in the next one if hand-offs have gone on for a while
 *                (handoff-chain.ts). The store hears nothing of it
 *   keep         the grant is idle. The next request that comes, if the grant may still be used then, gets it as with
 *                handOn, without a call (reuse(), enqueue()). A recall or loss while it is idle ends it (onEffect())
 *   usedUp, end  the claim is released, and a new one for the first waiter goes to the end of the store's queue, in the
 *                same batch of calls
 *
 * Most requests for the same exclusive locks share a queue. Others (in strict order, with a claim of their own,
 * readers, semaphores) have one each, with one waiter; in strict order a grant may pass from one queue to another.
 *
 * Invariant: a local queue has at most one live claim, pending or granted. A lost claim leaves the queue at once: its
 * local hold keeps it until the holder's code has ended, but local waiters can queue at the store without waiting for
 * that code.
 */

import type { ClosedError } from "../errors.ts";
import { isFatalError } from "../errors.ts";
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
import { Grant, tokensToRequest } from "./grant.ts";
import type { HandoffChain } from "./handoff-chain.ts";
import type { HoldQueue, RequestOrigin } from "./local-hold.ts";
import { LocalHold } from "./local-hold.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireSettings, ClientSettings, QueueKind } from "./options.ts";
import { toClaimSettings } from "./options.ts";
import type { QueueEvents } from "./queue-events.ts";
import type { QueueReader } from "./queue-reader.ts";
import { failedError, isAsking, isFailing, lateError, notBusyError } from "./rejections.ts";
import { createTimeoutError } from "./timeout-error.ts";
import type { TokenFloors } from "./token-floors.ts";
import type { Waiter, WaiterQueue } from "./waiter.ts";

const MAX_RESTART_DELAY_MS = 1_000;

/** What a queue has of the lock; see above. The state of a grant is that of the queue. */
type QueueState = { readonly status: "none" } | PendingClaim | Grant;

interface PendingClaim {
  readonly status: "pending";
  readonly activeClaim: ActiveClaim;
}

const NONE: QueueState = { status: "none" };

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

export class LocalQueue implements ClaimListener, HoldQueue, WaiterQueue {
  readonly context: ClientContext;
  readonly target: LockTarget;
  readonly #ttl: number | "session";
  readonly #kind: QueueKind;
  /** The name in `context.queues` of a shared queue, which other requests can join. */
  readonly #name: string;
  readonly #waiters = new LinkedList<Waiter>();
  #state: QueueState = NONE;
  /**
   * How many tokens the last claim suggests for the next one. After this queue the cached locks remember it, if there
   * are any.
   */
  #suggestedTokens: number;
  /** How many claims in a row have lost their queue entry. */
  #restarts = 0;

  constructor(context: ClientContext, target: LockTarget, ttl: number | "session", kind: QueueKind, name = "") {
    this.context = context;
    this.target = target;
    this.#ttl = ttl;
    this.#kind = kind;
    this.#name = name;
    this.#suggestedTokens = kind === "shared" ? context.cachedLocks.suggestedTokens(name) : 1;
  }

  enqueue(waiter: Waiter): void {
    const { status } = this.#state;
    const isBusy = status !== "none" && status !== "idle";
    // join before queueing: adding the signal's listener may throw, and a waiter that cannot leave would block the
    // others
    waiter.join(this);
    this.#waiters.push(waiter);
    if (this.#kind === "strict") this.context.strictWaits.add(this.#key);
    this.context.queueEvents.emitRequested(waiter);
    // a listener of the event may have withdrawn the request, or requested the same keys and so started the claim
    if (waiter.queue === null) return;
    if (this.#state.status === "idle") return this.#grantIdle(waiter.startedAt);
    if (!isBusy) return this.#state === NONE ? this.#startFor(waiter) : undefined;
    if (waiter.waits) return this.context.queueEvents.emitWaiting(waiter);
    const pendingClaim = this.#pendingClaim;
    // while the first call is under way the lock may be free, or the store down: unknown is not busy
    if (pendingClaim === null || !isAsking(pendingClaim)) this.#refuse(waiter, pendingClaim);
  }

  /**
   * Grants the lock at once, without a waiter, if its claim is idle and may be used; else null: the request must be
   * enqueued. Not for a client with listeners of the event "requested".
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
    const pendingClaim = this.#pendingClaim;
    if (pendingClaim !== null && isFailing(pendingClaim))
      return this.withdraw(waiter, failedError(pendingClaim, waiter.target.keys));
    this.#rejectBusy(waiter, this.context.engine.clock.now() - waiter.startedAt);
  }

  onClose(error: ClosedError): void {
    for (const waiter of [...this.#waiters]) this.withdraw(waiter, error);
  }

  // What happens to the claim at the store.

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
        return this.#onConfirmation(effect);
      case "recall":
        return this.#onRecalled(now);
    }
  }

  tokensToRenew(): number {
    const grant = this.#state as Grant;
    if (grant.holder?.isRenewed === false) grant.holder.onRenewal();
    return grant.tokensToRenew();
  }

  #onGranted(now: number): void {
    const { activeClaim } = this.#state as PendingClaim;
    if (activeClaim.state.status !== "held") return;
    this.#restarts = 0;
    const grant = this.#createGrant(activeClaim, now);
    this.#grantNext(grant, now);
    if (this.#waiters.size > 0) this.#refuseAll(null);
  }

  #onNotGranted(): void {
    const { activeClaim: pendingClaim } = this.#state as PendingClaim;
    const head = this.#waiters.first;
    if (head !== null && !isFailing(pendingClaim)) this.context.queueEvents.emitWaiting(head);
    this.#refuseAll(pendingClaim);
  }

  #onConfirmation(effect: "jeopardy" | "restored"): void {
    const holder = this.#grant?.holder;
    if (holder != null) this.context.queueEvents.emitConfirmation(effect, holder);
  }

  #onRecalled(now: number): void {
    const grant = this.#state as Grant;
    if (grant.status !== "idle") return grant.becomeWanted(now);
    this.context.cachedLocks.recordRecall(grant, now);
    this.giveBack(now);
  }

  /**
   * The claim is over before it was granted: its keys were busy, it has lost its place in the store's queue, or the
   * store failed.
   */
  #onRefused(effect: "refuse" | "expire" | "reject"): void {
    const { driver } = this.context.engine;
    const { activeClaim: pendingClaim } = this.#state as PendingClaim;
    this.#state = NONE;
    if (effect === "refuse") this.#refuseAll(pendingClaim);
    else {
      // unless the error is fatal, the requests that wait keep waiting
      const isFatal = effect === "reject" && isFatalError(pendingClaim.failure);
      for (const waiter of isFatal ? [...this.#waiters] : this.#listWithoutWait()) {
        if (waiter.queue !== this) continue; // as in #refuseAll()
        const { keys } = waiter.target;
        this.#removeFromList(waiter);
        waiter.reject(effect === "expire" ? lateError(driver.name, keys) : failedError(pendingClaim, keys));
      }
      if (effect === "expire") this.#restarts++;
    }
    this.#startNext();
  }

  #onLost(): void {
    const { engine, queueEvents } = this.context;
    const grant = this.#state as Grant;
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

  // The next claim.

  /** A request that is aborted in the turn in which it was made sends nothing. */
  #startFor({ settings, startedAt }: Waiter): void {
    if (settings.signal === undefined) return this.#startIfNone(startedAt);
    this.context.deferredStarts.add(() => this.#startIfNone(startedAt));
  }

  #startNext(now?: number): void {
    const { engine, queues } = this.context;
    // a listener of an event has requested the same keys, and so started the claim
    if (this.#state !== NONE) return;
    if (this.#waiters.size > 0) return this.#startIfNone(now ?? engine.clock.now());
    // or it has come after this queue was deleted: then another one has the name
    if (queues.get(this.#name) === this) queues.delete(this.#name);
  }

  #startIfNone(now: number): void {
    // one of them may be that of this queue
    this.context.deferredStarts.flush();
    if (this.#waiters.size > 0 && this.#state === NONE) this.#startClaim(now);
  }

  #startClaim(now: number): void {
    const head = this.#waiters.first as Waiter;
    const { engine, settings, tokenFloors, traits, cachedLocks } = this.context;
    const isShared = this.#kind === "shared";
    const claim: Claim = {
      id: randomId(),
      locks: this.target.locks,
      ttlMs: this.#ttl,
      tokenCount: this.#tokensToRequest(head),
      floor: tokenFloors.floor(this.target.locks),
      wait: head.waits,
      label: head.settings.label,
      recall: isShared && traits.recall !== false,
      successors: this.#kind === "strict",
    };
    cachedLocks.giveBackFor(claim.locks, now);
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, engine.random(), MAX_RESTART_DELAY_MS);
    const claimSettings = toClaimSettings(this.#ttl, claim.wait, traits, settings);
    this.#state = { status: "pending", activeClaim: engine.start(claim, claimSettings, this, now, delayMs) };
  }

  #tokensToRequest({ settings }: Waiter): number {
    const isCached = this.#kind === "shared" && settings.cacheMs > 0;
    return tokensToRequest(this.context, this.#kind, this.#waiters.size, this.#suggestedTokens, isCached);
  }

  // The grant and its holders.

  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine, queueEvents } = this.context;
    const { activeClaim, settings } = localHold;
    const now = engine.clock.now();
    if (localHold === this.#grant?.holder) engine.observe(now, activeClaim); // may find that the lock is lost
    engine.scheduler.cancel(localHold);
    const grant = this.#grant;
    if (grant?.holder !== localHold) {
      // lost before: its claim is no longer in this queue, and is released now that the holder's code has ended
      engine.release(activeClaim);
      return false;
    }
    const isHeld = activeClaim.isHeld(now);
    grant.endUse();
    queueEvents.emitReleased(localHold);
    // a listener of the event may have withdrawn the last request, and with it the claim
    return this.#state === grant ? this.#afterRelease(grant, isHeld, settings.cacheMs, now) : isHeld;
  }

  /** The holder has released the lock: hands the grant on, keeps it, or ends it. */
  #afterRelease(grant: Grant, isHeld: boolean, cacheMs: number, now: number): boolean | Promise<boolean> {
    const receiver = this.#findReceiver(grant);
    const next = isHeld ? grant.next(now, receiver !== null, cacheMs) : "end";
    switch (next) {
      case "handOn":
        this.#handOn(grant, receiver as LocalQueue, now);
        return true;
      case "keep":
        grant.becomeIdle(now, cacheMs);
        return true;
      case "usedUp":
      case "end":
        if (isHeld) this.#suggestedTokens = grant.suggestTokens(next === "usedUp");
        if (cacheMs > 0) this.#rememberTokens();
        return this.#end(grant, isHeld, now);
    }
  }

  /**
   * The queue whose first request is the next one: this one, or in strict order that of the successor; null: there is
   * none.
   */
  #findReceiver(grant: Grant): LocalQueue | null {
    if (this.#waiters.size > 0) return this;
    // a claim that waits is that of a local queue: an attached one, which has another listener at first, begins as held
    return (grant.findSuccessor()?.listener ?? null) as LocalQueue | null;
  }

  #handOn(grant: Grant, receiver: LocalQueue, now: number): void {
    if (receiver !== this) this.#passTo(receiver, grant, now);
    receiver.#grantNext(grant, now, true);
    this.context.queueEvents.emitHandedOff(receiver.#grant?.holder ?? null);
  }

  /** In strict order: the queue of the successor takes the grant over, and its own claim, which waits, is withdrawn. */
  #passTo(successor: LocalQueue, grant: Grant, now: number): void {
    const { activeClaim: ownClaim } = successor.#state as PendingClaim;
    this.#state = NONE;
    grant.activeClaim.listener = successor;
    successor.#state = grant;
    this.context.engine.release(ownClaim, now);
  }

  /**
   * Ends the grant. Its last holder need not wait for the store if others here want the lock: it can request it again
   * behind them.
   */
  #end(grant: Grant, isHeld: boolean, now: number): boolean | Promise<boolean> {
    const { engine, strictWaits } = this.context;
    const isWantedInStrictOrder = isHeld && this.#kind === "strict" && strictWaits.has(this.#key);
    const isWantedHere = this.#waiters.size > 0 ? grant.isUsable(now) : isWantedInStrictOrder;
    this.#leaveGrant(grant);
    const wasHeld = engine.releaseLock(grant.activeClaim, isHeld, now);
    this.#startNext(now); // in the same turn: both calls leave together
    return isWantedHere ? true : wasHeld;
  }

  giveBack(now: number): void {
    const { engine, queueEvents } = this.context;
    const grant = this.#grant;
    if (grant === null) return; // its requests wait on
    const { holder, status } = grant;
    if (status === "between") return; // #afterRelease() follows
    if (status === "idle") {
      this.#suggestedTokens = grant.suggestTokens(!grant.hasTokens);
      this.#rememberTokens();
    }
    this.#leaveGrant(grant);
    engine.release(grant.activeClaim, now);
    this.#startNext(now);
    if (holder === null) return;
    engine.scheduler.cancel(holder);
    queueEvents.emitReleased(holder);
    holder.lose("released");
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
    const { engine, settings, tokenFloors } = this.context;
    const now = engine.clock.now();
    activeClaim.listener = this;
    const grant = this.#createGrant(activeClaim, now);
    const localHold = this.#hold(grant, { target: this.target, request: nextRequest(), settings }, token, now);
    tokenFloors.record(this.target.locks, token);
    this.context.queueEvents.emitAttached(localHold);
    return localHold;
  }

  #createGrant(activeClaim: ActiveClaim, now: number): Grant {
    const grant = new Grant(this.context, this.#kind, this.#name, activeClaim, now);
    this.#state = grant;
    return grant;
  }

  #grantNext(grant: Grant, now: number, isHandoff = false): void {
    const waiter = this.#waiters.first as Waiter;
    this.#removeFromList(waiter);
    // in strict order no other request can use the claim, so there is nothing to wait for
    const isLast = this.#waiters.size === 0 && this.#kind === "shared";
    const delay = isHandoff ? this.context.handoffChain.delay(now, isLast) : null;
    const localHold = this.#hold(grant, waiter, grant.takeToken(), now);
    // settle before emitting: a listener may abort the signal, which must no longer affect this request
    waiter.grant(localHold, delay);
    this.context.queueEvents.emitAcquired(localHold, waiter.startedAt);
  }

  #hold(grant: Grant, origin: RequestOrigin, token: bigint, now: number): LocalHold {
    const localHold = new LocalHold(this, grant.activeClaim, origin, token, now);
    grant.beginUse(localHold);
    const { maxHoldMs } = origin.settings;
    if (maxHoldMs < Number.POSITIVE_INFINITY) this.context.engine.scheduler.schedule(localHold, now + maxHoldMs);
    return localHold;
  }

  /** A waiter has come while the grant is idle. */
  #grantIdle(now: number): void {
    const grant = this.#takeIdle(now);
    if (grant !== null) this.#grantNext(grant, now);
  }

  /** Returns the idle grant if a request may use it now; null: there is none any more, and waiters have a new claim. */
  #takeIdle(now: number): Grant | null {
    const grant = this.#grant;
    if (grant?.idleSince == null) return null;
    // a machine that slept may have lost it; a listener of that event may have used or ended it
    this.context.engine.observe(now, grant.activeClaim);
    if (grant.idleSince === null) return null;
    if (grant.reuse(now)) return grant;
    this.giveBack(now);
    return null;
  }

  /** The claim is not the one of this queue any more. */
  #leaveGrant(grant: Grant): void {
    this.#state = NONE;
    grant.end();
  }

  get #pendingClaim(): ActiveClaim | null {
    return this.#state.status === "pending" ? this.#state.activeClaim : null;
  }

  get #grant(): Grant | null {
    const state = this.#state;
    return state.status === "none" || state.status === "pending" ? null : state;
  }

  get #key(): string {
    return this.target.locks[0].key;
  }

  #rememberTokens(): void {
    if (this.#kind === "shared") this.context.cachedLocks.recordTokens(this.#name, this.#suggestedTokens);
  }

  // Requests that leave the queue without a lock.

  #removeFromList(waiter: Waiter): void {
    this.#waiters.remove(waiter);
    if (this.#kind === "strict") this.context.strictWaits.remove(this.#key);
  }

  #removeWaiter(waiter: Waiter): void {
    this.#removeFromList(waiter);
    const state = this.#state;
    if (this.#waiters.size > 0 || state.status === "used" || state.status === "idle") return;
    if (state.status === "between") this.#leaveGrant(state);
    this.#state = NONE;
    if (state.status !== "none") this.context.engine.release(state.activeClaim);
    this.#startNext();
  }

  #listWithoutWait(): Waiter[] {
    return [...this.#waiters].filter(({ waits }) => !waits);
  }

  /**
   * The store has answered about the claim, or a local holder has the lock (null): the requests that do not wait have
   * their answer, too.
   */
  #refuseAll(pendingClaim: ActiveClaim | null): void {
    // a listener of the event of one may have withdrawn another
    for (const waiter of this.#listWithoutWait()) if (waiter.queue === this) this.#refuse(waiter, pendingClaim);
  }

  #refuse(waiter: Waiter, pendingClaim: ActiveClaim | null): void {
    const now = this.context.engine.clock.now();
    const error = pendingClaim === null ? null : notBusyError(pendingClaim, waiter.target.keys, now);
    if (error === null) this.#rejectBusy(waiter, 0);
    else this.withdraw(waiter, error);
  }

  /** Removes the request from the queue and rejects it once the lookup of the current holder has ended. */
  #rejectBusy(waiter: Waiter, waitedMs: number): void {
    const { target, settings } = waiter;
    if (settings.isNullIfBusy === true) return this.withdraw(waiter, null);
    let localAhead = this.#grant?.holder == null ? 0 : 1;
    for (let ahead = waiter.previous; ahead !== null; ahead = ahead.previous) localAhead++;
    const activeClaim = this.#state.status === "none" ? null : this.#state.activeClaim;
    // start the lookup before the claim's own entry is released, so that it counts the claims ahead of it
    const { heldKeys = [] } = settings;
    const wait = { target, activeClaim, localAhead, waitedMs, heldKeys };
    const error = createTimeoutError(this.context.queueReader, wait);
    this.#removeWaiter(waiter);
    waiter.leave();
    void error.then((timeout) => waiter.reject(timeout));
  }
}
