/**
 * The waiters of this process for the same keys, and the one claim that represents them at the store. A request that
 * cannot share a claim has a local queue of its own.
 *
 *   no claim   no local request wants the keys (then the queue is deleted), or the next claim is about to start
 *   pending    `activeClaim` is being requested or waits at the store, for the first waiter
 *   held       `localHold` is the local holder; the other requests wait
 *
 * Invariants: a local queue has at most one live claim. A lost claim leaves the queue at once: its local hold keeps it until
 * the holder's code has ended, but local waiters can queue at the store without waiting for that code.
 */

import type { LostReason } from "../errors.ts";
import { DriverError, describePause, isFatalError, StorePausedError } from "../errors.ts";
import type { Claim } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import { randomId } from "../util/ids.ts";
import type { AttachAttempt } from "./attach-attempt.ts";
import { wrapDriverError } from "./driver-error.ts";
import type { ActiveClaim, ClaimListener } from "./engine.ts";
import type { HandoffLimits } from "./handoff-budget.ts";
import { HandoffBudget } from "./handoff-budget.ts";
import { formatKeys, LocalHold } from "./local-hold.ts";
import type { LocalQueues } from "./local-queues.ts";
import type { LockTarget } from "./lock-target.ts";
import { createTimeoutError } from "./timeout-error.ts";
import type { Waiter } from "./waiter.ts";

const MAX_RESTART_DELAY_MS = 1_000;
const NO_HANDOFFS: HandoffLimits = { handoffs: 1, handoffMs: 0 };

export class LocalQueue implements ClaimListener {
  readonly parent: LocalQueues;
  readonly target: LockTarget;
  readonly #ttl: number | "session";
  /** The name in the map of `parent`; null: other requests cannot join this queue. */
  readonly #name: string | null;
  readonly #budget: HandoffBudget<Waiter>;
  #activeClaim: ActiveClaim | null = null;
  #localHold: LocalHold | null = null;
  #attachAttempt: AttachAttempt | null = null;
  /** How many claims in a row have lost their queue entry. */
  #restarts = 0;

  constructor(parent: LocalQueues, target: LockTarget, ttl: number | "session", name: string | null) {
    this.parent = parent;
    this.target = target;
    this.#ttl = ttl;
    this.#name = name;
    this.#budget = new HandoffBudget(name === null ? NO_HANDOFFS : parent.settings);
  }

  enqueue(waiter: Waiter): void {
    const isBusy = this.#activeClaim !== null;
    // join before queueing: adding the signal's listener may throw, and a waiter that cannot leave would block the others
    waiter.join(this);
    this.#budget.queue.push(waiter);
    if (!isBusy) return this.#startClaim(waiter.startedAt);
    if (waiter.noWait) return this.#rejectBusy(waiter, this.#activeClaim as ActiveClaim);
    this.parent.emitWaiting(waiter);
  }

  /** The user has cancelled the request. Without further requests the claim is released, too. */
  withdraw(waiter: Waiter, reason: unknown): void {
    this.#removeWaiter(waiter);
    waiter.reject(reason);
  }

  timeOut(waiter: Waiter): void {
    if (this.#activeClaim !== null && isFailing(this.#activeClaim)) {
      return this.withdraw(
        waiter,
        wrapDriverError(
          this.#activeClaim.failure,
          `could not acquire ${formatKeys(waiter.target.keys)}`,
          waiter.target.keys,
        ),
      );
    }
    this.#timeOutWaiter(waiter, this.parent.engine.clock.now() - waiter.startedAt);
  }

  onGranted(now: number): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    if (activeClaim.state.status !== "held") return;
    this.#restarts = 0;
    this.#budget.onGranted(activeClaim.state.token, activeClaim.state.tokenCount, now);
    this.#grantNext(activeClaim, this.#budget.firstToken(), now);
  }

  onQueued(): void {
    const head = this.#budget.queue.first;
    if (head !== null) this.parent.emitWaiting(head);
  }

  onBusy(): void {
    const head = this.#budget.queue.first;
    const activeClaim = this.#activeClaim as ActiveClaim;
    this.#activeClaim = null;
    if (head?.noWait) this.#rejectBusy(head, activeClaim);
    this.#startNext();
  }

  onExpired(): void {
    const head = this.#budget.queue.first;
    this.#activeClaim = null;
    if (head?.noWait) {
      const { keys } = head.target;
      this.#budget.queue.remove(head);
      head.reject(
        new DriverError(`${this.parent.engine.driver.name} answered too late for ${formatKeys(keys)}`, { keys }),
      );
    }
    this.#restarts++;
    this.#startNext();
  }

  onFailed(error: unknown): void {
    this.#activeClaim = null;
    const { queue } = this.#budget;
    // a transient error rejects only a no-wait request at the head; the other requests keep waiting
    while (queue.first !== null && (queue.first.noWait || isFatalError(error))) {
      const head = queue.first;
      queue.remove(head);
      head.reject(wrapDriverError(error, `could not acquire ${formatKeys(head.target.keys)}`, head.target.keys));
      if (!isFatalError(error)) break;
    }
    this.#startNext();
  }

  onLost(reason: LostReason): void {
    if (this.#attachAttempt !== null) return this.#attachAttempt.onLost(reason);
    const localHold = this.#localHold as LocalHold;
    this.#localHold = null;
    this.#activeClaim = null;
    this.parent.engine.scheduler.cancel(localHold);
    // before the loss is reported: a listener may request the same keys at once and must queue behind the waiters
    this.#startNext();
    this.parent.emitLost(localHold, reason);
    localHold.lose(reason);
  }

  onUnconfirmed(isUnconfirmed: boolean): void {
    if (this.#attachAttempt !== null && !isUnconfirmed) this.#attachAttempt.onConfirmed();
    else if (this.#localHold !== null) this.parent.emitJeopardy(this.#localHold, isUnconfirmed);
  }

  /** Called when the last handle of the local holder is released. True if the lock was held until now. */
  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine } = this.parent;
    engine.scheduler.cancel(localHold);
    if (localHold !== this.#localHold) {
      // lost before: its claim is no longer in this queue, and is released now that the holder's code has ended
      engine.release(localHold.activeClaim);
      return false;
    }
    const now = engine.clock.now();
    const isHeld = engine.isHeld(localHold.activeClaim, now);
    if (localHold !== this.#localHold) return this.release(localHold); // isHeld() read the clocks and reported a loss
    this.#localHold = null;
    const { activeClaim } = localHold;
    this.parent.emitReleased(localHold);
    // a listener of the event may have withdrawn the last request, and with it the claim
    if (this.#activeClaim !== activeClaim) return isHeld;
    const token = isHeld ? this.#budget.nextToken(now, hasEnoughLease(activeClaim, now)) : null;
    if (token !== null) {
      this.#grantNext(activeClaim, token, now);
      this.parent.emitHandedOff(this.#localHold as LocalHold | null);
      return true;
    }
    return this.#releaseToStore(activeClaim, isHeld, now);
  }

  /** Releases the claim although the local holder has not released it; for close() and releaseAll(). */
  forceRelease(): void {
    const localHold = this.#localHold;
    if (localHold === null) return;
    this.#localHold = null;
    this.parent.engine.scheduler.cancel(localHold);
    void this.#releaseToStore(localHold.activeClaim, true, this.parent.engine.clock.now());
    localHold.lose("released");
  }

  /** Rejects all waiting requests with this error. */
  rejectAll(error: unknown): void {
    this.#attachAttempt?.reject(error);
    for (const waiter of [...this.#budget.queue]) this.withdraw(waiter, error);
  }

  /** Drops the claim without releasing it: its holder has detached it. */
  transferOut(localHold: LocalHold): void {
    this.#localHold = null;
    this.#activeClaim = null;
    this.parent.engine.scheduler.cancel(localHold);
    localHold.refCount = 0;
    this.parent.engine.forget(localHold.activeClaim);
    this.#startNext();
  }

  /** Attaches a claim that was made elsewhere: until it is confirmed or refused, its events go to `attempt`. */
  startAttach(attempt: AttachAttempt): void {
    this.#attachAttempt = attempt;
    this.#activeClaim = attempt.activeClaim;
  }

  /** The attach attempt is over. `localHold` is the claim's holder; null: the attempt failed. */
  finishAttach(localHold: LocalHold | null): void {
    this.#attachAttempt = null;
    this.#localHold = localHold;
    if (localHold === null) this.#activeClaim = null;
  }

  exceedMaxHold(localHold: LocalHold): void {
    if (localHold === this.#localHold) this.parent.engine.exceedMaxHold(localHold.activeClaim);
  }

  isHeld(activeClaim: ActiveClaim): boolean {
    return this.parent.engine.isHeld(activeClaim);
  }

  remainingMs(activeClaim: ActiveClaim): number {
    return activeClaim.state.status === "held"
      ? Math.max(activeClaim.state.deadline - this.parent.engine.clock.now(), 0)
      : 0;
  }

  #startClaim(now: number): void {
    const head = this.#budget.queue.first as Waiter;
    const { parent } = this;
    const claim: Claim = {
      id: randomId(),
      locks: this.target.locks,
      ttlMs: this.#ttl,
      tokenCount: this.#budget.tokensToRequest(),
      floor: parent.tokenFloors.floor(this.target.locks),
      wait: !head.noWait,
      label: head.settings.label,
    };
    const { random } = parent.engine;
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, random(), MAX_RESTART_DELAY_MS);
    this.#activeClaim = parent.engine.start(claim, parent.toClaimSettings(this.#ttl, claim.wait), this, now, delayMs);
  }

  #grantNext(activeClaim: ActiveClaim, token: bigint, now: number): void {
    const waiter = this.#budget.queue.first as Waiter;
    this.#budget.queue.remove(waiter);
    const { parent } = this;
    const localHold = new LocalHold(this, activeClaim, waiter.target, token, now);
    this.#localHold = localHold;
    parent.tokenFloors.record(this.target.locks, token);
    if (parent.settings.maxHoldMs < Number.POSITIVE_INFINITY)
      parent.engine.scheduler.schedule(localHold, now + parent.settings.maxHoldMs);
    // settle before emitting: a listener may abort the signal, which must no longer affect this request
    waiter.grant(localHold);
    parent.emitAcquired(localHold, waiter);
  }

  /** Releases the claim and, if requests wait here, starts the next claim in the same turn. */
  #releaseToStore(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    this.#activeClaim = null;
    const { engine } = this.parent;
    const expiresAt = activeClaim.state.status === "held" ? activeClaim.state.deadline + engine.suspendedMs : 0;
    const result = new Promise<boolean>((resolve) => {
      // If the lease was valid by the local clock, the lock counts as held, unless the store answers within the lease that
      // the claim did not exist. If it was not, the lock counts as lost, unless the store answers that the claim existed.
      const onReleased = (existed: boolean | null): void =>
        resolve(isHeld ? existed !== false || engine.elapsedMs() >= expiresAt : existed === true);
      engine.release(activeClaim, onReleased, now);
    });
    this.#startNext(now);
    return result;
  }

  #startNext(now?: number): void {
    if (this.#budget.queue.size > 0) this.#startClaim(now ?? this.parent.engine.clock.now());
    else if (this.#name !== null) this.parent.queues.delete(this.#name);
  }

  #removeWaiter(waiter: Waiter): void {
    const { queue } = this.#budget;
    queue.remove(waiter);
    if (queue.size > 0 || this.#localHold !== null) return;
    const activeClaim = this.#activeClaim;
    this.#activeClaim = null;
    if (activeClaim !== null) this.parent.engine.release(activeClaim);
    this.#startNext();
  }

  /** Rejects a no-wait request: busy, unless the store is paused and no local holder has the lock. */
  #rejectBusy(waiter: Waiter, activeClaim: ActiveClaim): void {
    const pause =
      activeClaim.state.status === "held" ? undefined : activeClaim.currentPause(this.parent.engine.clock.now());
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
    const paused = this.#activeClaim?.currentPause(this.parent.engine.clock.now());
    // start the lookup before the claim's own entry is released, so that it counts the claims ahead of it
    const error = createTimeoutError(this.parent, { locks, keys, id, localAhead, waitedMs, paused });
    this.#removeWaiter(waiter);
    waiter.leave();
    void error.then((timeout) => waiter.reject(timeout));
  }
}

/** Is enough of the lease left for another holder? */
function hasEnoughLease({ state, settings }: ActiveClaim, now: number): boolean {
  return state.status === "held" && state.callState.failures === 0 && state.deadline - now > 0.45 * settings.ttlMs;
}

function isFailing({ state }: ActiveClaim): boolean {
  return (state.status === "asking" || state.status === "waiting") && state.callState.failures > 0;
}
