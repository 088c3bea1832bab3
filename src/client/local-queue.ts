/**
 * The shell around core/lane: the local queue for the same keys and the claim that stands for it at the store. Requests
 * that cannot share a claim have a lane of their own for one request.
 *
 *   no claim   nobody here wants the keys (then the lane is dropped), or the next claim is about to start
 *   pending    `activeClaim` asks or waits, for the head of the queue
 *   held       `localHold` is the local holder; the others queue
 *
 * Invariants: at most one live claim a lane; a lost claim leaves the lane at once (its tenure takes it along until its
 * body has ended), so that local waiters can queue at the store without waiting for that body.
 */

import { DriverError, describePause, isFatalError, StorePausedError } from "../errors.ts";
import type { Claim, LostReason } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import { randomId } from "../util/ids.ts";
import type { ActiveClaim, ClaimListener } from "./active-claim.ts";
import type { AttachAttempt } from "./attach-attempt.ts";
import { wrapDriverError } from "./driver-error.ts";
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
  /** Its name in the host's map; null: nobody else may join it. */
  readonly #name: string | null;
  readonly #budget: HandoffBudget<Waiter>;
  #activeClaim: ActiveClaim | null = null;
  #localHold: LocalHold | null = null;
  #attachAttempt: AttachAttempt | null = null;
  /** Places lost in a row. */
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
    waiter.join(this); // first: a signal may throw, and nobody may wait behind who will never take his turn
    this.#budget.queue.push(waiter);
    if (!isBusy) return this.#startClaim(waiter.startedAt);
    if (waiter.noWait) return this.#rejectBusy(waiter, this.#activeClaim as ActiveClaim);
    this.parent.emitWaiting(waiter);
  }

  /** The request's user has given up; with its last request the claim goes too. */
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
          `could not ask for ${formatKeys(waiter.target.keys)}`,
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
    // what is not fatal ends only who asked once; he may have left the claim to another who goes on waiting
    while (queue.first !== null && (queue.first.noWait || isFatalError(error))) {
      const head = queue.first;
      queue.remove(head);
      head.reject(wrapDriverError(error, `could not ask for ${formatKeys(head.target.keys)}`, head.target.keys));
      if (!isFatalError(error)) break;
    }
    this.#startNext();
  }

  onLost(reason: LostReason): void {
    if (this.#attachAttempt !== null) return this.#attachAttempt.onLost(reason);
    const localHold = this.#localHold as LocalHold;
    this.#localHold = null;
    this.#activeClaim = null;
    this.parent.engine.cancel(localHold);
    // first: whoever hears of the loss may ask for the same keys at once
    this.#startNext();
    this.parent.emitLost(localHold, reason);
    localHold.lose(reason);
  }

  onUnconfirmed(isUnconfirmed: boolean): void {
    if (this.#attachAttempt !== null && !isUnconfirmed) this.#attachAttempt.onConfirmed();
    else if (this.#localHold !== null) this.parent.emitJeopardy(this.#localHold, isUnconfirmed);
  }

  /** The last handle of the local holder was given back. True if it was ours until now. */
  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine } = this.parent;
    engine.cancel(localHold);
    if (localHold !== this.#localHold) {
      // lost: its claim has left the lane already, and goes now that the body has ended
      engine.release(localHold.activeClaim);
      return false;
    }
    const now = engine.clock.now();
    const isHeld = engine.isHeld(localHold.activeClaim, now);
    if (localHold !== this.#localHold) return this.release(localHold); // reading the clocks told us that it is lost
    this.#localHold = null;
    const { activeClaim } = localHold;
    this.parent.emitReleased(localHold);
    // whoever heard of it has withdrawn the last request, and with it the claim
    if (this.#activeClaim !== activeClaim) return isHeld;
    const token = isHeld ? this.#budget.nextToken(now, hasEnoughLease(activeClaim, now)) : null;
    if (token !== null) {
      this.#grantNext(activeClaim, token, now);
      this.parent.emitHandedOff(this.#localHold as LocalHold | null);
      return true;
    }
    return this.#releaseToStore(activeClaim, isHeld, now);
  }

  /** The local holder is given up, though it has not let go: close() and releaseAll() do so. */
  forceRelease(): void {
    const localHold = this.#localHold;
    if (localHold === null) return;
    this.#localHold = null;
    this.parent.engine.cancel(localHold);
    void this.#releaseToStore(localHold.activeClaim, true, this.parent.engine.clock.now());
    localHold.lose("released");
  }

  /** All waiting requests end with this error. */
  rejectAll(error: unknown): void {
    this.#attachAttempt?.reject(error);
    for (const waiter of [...this.#budget.queue]) this.withdraw(waiter, error);
  }

  /** The claim has gone to somebody else, with its holder's consent. */
  transferOut(localHold: LocalHold): void {
    this.#localHold = null;
    this.#activeClaim = null;
    this.parent.engine.cancel(localHold);
    localHold.refCount = 0;
    this.parent.engine.forget(localHold.activeClaim);
    this.#startNext();
  }

  /** A claim made elsewhere is being taken up here: until it is confirmed or refused, all that is heard of it goes there. */
  startAttach(attempt: AttachAttempt): void {
    this.#attachAttempt = attempt;
    this.#activeClaim = attempt.activeClaim;
  }

  /** The adoption is over: this is the claim's one holder, or it is not ours. */
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
      holds: this.target.holds,
      ttlMs: this.#ttl,
      tokens: this.#budget.tokensToRequest(),
      floor: parent.tokenFloors.floor(this.target.holds),
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
    parent.tokenFloors.record(this.target.holds, token);
    if (parent.settings.maxHoldMs < Number.POSITIVE_INFINITY)
      parent.engine.schedule(localHold, now + parent.settings.maxHoldMs);
    // first: whoever hears of it may abort, and has nothing to abort any more
    waiter.grant(localHold);
    parent.emitAcquired(localHold, waiter);
  }

  /** Releases the claim and, if somebody here waits, queues again at the store's end, in one turn. */
  #releaseToStore(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    this.#activeClaim = null;
    const { engine } = this.parent;
    const expiresAt = activeClaim.state.status === "held" ? activeClaim.state.deadline + engine.suspendedMs : 0;
    const result = new Promise<boolean>((resolve) => {
      // our own clock settles it; of the store only a plain "it was not there", said while the lease stands, is news.
      // Where we are in doubt it is the other way round: only the store's "it was there" counts
      const onReleased = (wasThere: boolean | null): void =>
        resolve(isHeld ? wasThere !== false || engine.elapsedMs() >= expiresAt : wasThere === true);
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

  /** It was asked once, and not granted at once: busy, unless the store grants nothing to anyone and nobody here holds. */
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

  /** Takes the request out of the queue and, in the background, finds out why it had to wait. */
  #timeOutWaiter(waiter: Waiter, waitedMs: number): void {
    if (waiter.isTry) return this.withdraw(waiter, null);
    let localAhead = this.#localHold === null ? 0 : 1;
    for (let ahead = waiter.previous; ahead !== null; ahead = ahead.previous) localAhead++;
    const { holds, keys } = waiter.target;
    const id = this.#activeClaim?.claim.id ?? null;
    const paused = this.#activeClaim?.currentPause(this.parent.engine.clock.now());
    // looked at while our own place still stands; the user is told when the look is back, or too late
    const error = createTimeoutError(this.parent, { holds, keys, id, localAhead, waitedMs, paused });
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
