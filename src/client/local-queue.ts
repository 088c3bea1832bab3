/**
 * The waiters of this process for the same keys, their local holder, and the one claim that represents them at the store. A
 * request that cannot share a claim has a local queue of its own.
 *
 *   no claim   no local request wants the keys (then the queue is deleted), or the next claim is about to start
 *   pending    `activeClaim` is being requested or waits at the store, for the first waiter
 *   held       `localHold` is the local holder; the other requests wait
 *
 * Invariants: a local queue has at most one live claim. A lost claim leaves the queue at once: its local hold keeps it until
 * the holder's code has ended, but local waiters can queue at the store without waiting for that code.
 */

import { setMaxListeners } from "node:events";
import type { ClosedError, LockLostError, LostReason } from "../errors.ts";
import {
  DriverError,
  describePause,
  formatKeys,
  isFatalError,
  lockLostError,
  StorePausedError,
  wrapDriverError,
} from "../errors.ts";
import type { Claim, Traits } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import { randomId } from "../util/ids.ts";
import { LinkedList } from "../util/linked-list.ts";
import type { SlotMap } from "../util/slot-map.ts";
import type { ActiveClaim, ClaimListener, Engine } from "./engine.ts";
import { modeOf, nextRequest, outcomeOf } from "./event-fields.ts";
import type { Events, FailedOutcome, LockEvent } from "./events.ts";
import type { HandoffLimits } from "./handoff-budget.ts";
import { HandoffBudget } from "./handoff-budget.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireSettings, ClientSettings } from "./options.ts";
import { toClaimSettings } from "./options.ts";
import type { QueueReader } from "./queue-reader.ts";
import type { ScheduledTask } from "./scheduler.ts";
import { createTimeoutError } from "./timeout-error.ts";
import type { TokenFloors } from "./token-floors.ts";

const MAX_RESTART_DELAY_MS = 1_000;
const NO_HANDOFFS: HandoffLimits = { handoffs: 1, handoffMs: 0 };

/** What the local queues of one client share. */
export interface ClientContext {
  readonly engine: Engine;
  readonly traits: Traits;
  readonly settings: ClientSettings;
  readonly events: Events;
  readonly tokenFloors: TokenFloors;
  readonly queueReader: QueueReader;
  /** The queues that other requests can join, by name. */
  readonly queues: SlotMap<string, LocalQueue>;
}

export class LocalQueue implements ClaimListener {
  readonly context: ClientContext;
  readonly target: LockTarget;
  readonly #ttl: number | "session";
  /** The name in `context.queues`; null: other requests cannot join this queue. */
  readonly #name: string | null;
  readonly #waiters = new LinkedList<Waiter>();
  readonly #budget: HandoffBudget;
  #activeClaim: ActiveClaim | null = null;
  #localHold: LocalHold | null = null;
  /** How many claims in a row have lost their queue entry. */
  #restarts = 0;

  constructor(context: ClientContext, target: LockTarget, ttl: number | "session", name: string | null) {
    this.context = context;
    this.target = target;
    this.#ttl = ttl;
    this.#name = name;
    this.#budget = new HandoffBudget(name === null ? NO_HANDOFFS : context.settings);
  }

  enqueue(waiter: Waiter): void {
    const isBusy = this.#activeClaim !== null;
    // join before queueing: adding the signal's listener may throw, and a waiter that cannot leave would block the others
    waiter.join(this);
    this.#waiters.push(waiter);
    this.#emitRequested(waiter);
    // a listener of the event may have withdrawn the request, or requested the same keys and so started the claim
    if (waiter.queue === null) return;
    if (!isBusy) return this.#activeClaim === null ? this.#startClaim(waiter.startedAt) : undefined;
    if (waiter.noWait) return this.#rejectBusy(waiter, this.#activeClaim as ActiveClaim);
    this.#emitWaiting(waiter);
  }

  /** The user has cancelled the request. Without further requests the claim is released, too. */
  withdraw(waiter: Waiter, reason: unknown, outcome?: FailedOutcome): void {
    this.#removeWaiter(waiter);
    waiter.reject(reason, outcome);
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
    this.#timeOutWaiter(waiter, this.context.engine.clock.now() - waiter.startedAt);
  }

  onGranted(now: number): void {
    const activeClaim = this.#activeClaim as ActiveClaim;
    if (activeClaim.state.status !== "held") return;
    this.#restarts = 0;
    this.#budget.onGranted(activeClaim.state.token, activeClaim.state.tokenCount, now);
    this.#grantNext(activeClaim, this.#budget.firstToken(), now);
  }

  onQueued(): void {
    const head = this.#waiters.first;
    if (head !== null) this.#emitWaiting(head);
  }

  onBusy(): void {
    const head = this.#waiters.first;
    const activeClaim = this.#activeClaim as ActiveClaim;
    this.#activeClaim = null;
    if (head?.noWait) this.#rejectBusy(head, activeClaim);
    this.#startNext();
  }

  onExpired(): void {
    const head = this.#waiters.first;
    this.#activeClaim = null;
    if (head?.noWait) {
      const { keys } = head.target;
      this.#waiters.remove(head);
      head.reject(
        new DriverError(`${this.context.engine.driver.name} answered too late for ${formatKeys(keys)}`, { keys }),
      );
    }
    this.#restarts++;
    this.#startNext();
  }

  onFailed(error: unknown): void {
    this.#activeClaim = null;
    const queue = this.#waiters;
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
    const localHold = this.#localHold as LocalHold;
    this.#localHold = null;
    this.#activeClaim = null;
    this.context.engine.scheduler.cancel(localHold);
    // before the loss is reported: a listener may request the same keys at once and must queue behind the waiters
    this.#startNext();
    this.#emitLost(localHold, reason);
    localHold.lose(reason);
  }

  onUnconfirmed(): void {
    this.#emitConfirmation("jeopardy");
  }

  onConfirmed(): void {
    this.#emitConfirmation("restored");
  }

  /** Called when the last handle of the local holder is released. True if the lock was held until now. */
  release(localHold: LocalHold): boolean | Promise<boolean> {
    const { engine } = this.context;
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
    this.#emitReleased(localHold);
    // a listener of the event may have withdrawn the last request, and with it the claim
    if (this.#activeClaim !== activeClaim) return isHeld;
    const isWanted = this.#waiters.size > 0 && hasEnoughLease(activeClaim, now);
    const token = isHeld ? this.#budget.nextToken(now, isWanted) : null;
    if (token !== null) {
      this.#grantNext(activeClaim, token, now);
      this.#emitHandedOff(this.#localHold as LocalHold | null);
      return true;
    }
    return this.#releaseToStore(activeClaim, isHeld, now);
  }

  /** Releases the claim although the local holder has not released it. */
  onReleaseAll(): void {
    const localHold = this.#localHold;
    if (localHold === null) return;
    this.#localHold = null;
    this.context.engine.scheduler.cancel(localHold);
    void this.#releaseToStore(localHold.activeClaim, true, this.context.engine.clock.now());
    this.#emitReleased(localHold);
    localHold.lose("released");
  }

  onClose(error: ClosedError): void {
    for (const waiter of [...this.#waiters]) this.withdraw(waiter, error);
  }

  /** Drops the claim without releasing it: its holder has detached it. */
  transferOut(localHold: LocalHold): void {
    const { engine } = this.context;
    // released meanwhile: it is not this holder's claim any more
    if (localHold.isOpen) engine.forget(localHold.activeClaim);
    localHold.refCount = 0;
    if (localHold !== this.#localHold) return; // lost meanwhile: the queue has a new claim, or none
    this.#localHold = null;
    this.#activeClaim = null;
    engine.scheduler.cancel(localHold);
    this.#startNext();
    if (this.context.events.hasListeners("detached"))
      this.context.events.emit("detached", { ...this.describe(localHold), heldMs: this.#heldMs(localHold) });
  }

  /** Takes over a claim that was made elsewhere and is held: from now on its events come here. */
  takeOver(activeClaim: ActiveClaim, token: bigint): LocalHold {
    activeClaim.listener = this;
    this.#activeClaim = activeClaim;
    const { engine, settings } = this.context;
    const origin = { target: this.target, request: nextRequest(), settings };
    const localHold = this.#hold(activeClaim, origin, token, engine.clock.now());
    if (this.context.events.hasListeners("attached")) this.context.events.emit("attached", this.describe(localHold));
    return localHold;
  }

  /** The fields of events about the lock. */
  describe(localHold: LocalHold): LockEvent & { readonly token: bigint } {
    return { ...this.#describeRequest(localHold), token: localHold.token };
  }

  #startClaim(now: number): void {
    const head = this.#waiters.first as Waiter;
    const { engine, settings, tokenFloors, traits } = this.context;
    const claim: Claim = {
      id: randomId(),
      locks: this.target.locks,
      ttlMs: this.#ttl,
      tokenCount: this.#budget.tokensToRequest(this.#waiters.size),
      floor: tokenFloors.floor(this.target.locks),
      wait: !head.noWait,
      label: head.settings.label,
    };
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, engine.random(), MAX_RESTART_DELAY_MS);
    const claimSettings = toClaimSettings(this.#ttl, claim.wait, traits, settings);
    this.#activeClaim = engine.start(claim, claimSettings, this, now, delayMs);
  }

  #grantNext(activeClaim: ActiveClaim, token: bigint, now: number): void {
    const waiter = this.#waiters.first as Waiter;
    this.#waiters.remove(waiter);
    const localHold = this.#hold(activeClaim, waiter, token, now);
    // settle before emitting: a listener may abort the signal, which must no longer affect this request
    waiter.grant(localHold);
    this.#emitAcquired(localHold, waiter);
  }

  #hold(activeClaim: ActiveClaim, origin: RequestOrigin, token: bigint, now: number): LocalHold {
    const localHold = new LocalHold(this, activeClaim, origin, token, now);
    this.#localHold = localHold;
    const { engine, tokenFloors } = this.context;
    const { maxHoldMs } = origin.settings;
    tokenFloors.record(origin.target.locks, token);
    if (maxHoldMs < Number.POSITIVE_INFINITY) engine.scheduler.schedule(localHold, now + maxHoldMs);
    return localHold;
  }

  /** Releases the claim and, if requests wait here, starts the next claim in the same turn. */
  #releaseToStore(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    this.#activeClaim = null;
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
    if (this.#waiters.size > 0) this.#startClaim(now ?? this.context.engine.clock.now());
    else if (this.#name !== null) this.context.queues.delete(this.#name);
  }

  #removeWaiter(waiter: Waiter): void {
    this.#waiters.remove(waiter);
    if (this.#waiters.size > 0 || this.#localHold !== null) return;
    const activeClaim = this.#activeClaim;
    this.#activeClaim = null;
    if (activeClaim !== null) this.context.engine.release(activeClaim);
    this.#startNext();
  }

  /** Rejects a no-wait request: busy, unless the store is paused and no local holder has the lock. */
  #rejectBusy(waiter: Waiter, activeClaim: ActiveClaim): void {
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
    // start the lookup before the claim's own entry is released, so that it counts the claims ahead of it
    const error = createTimeoutError(this.context.queueReader, { locks, keys, id, localAhead, waitedMs, paused });
    this.#removeWaiter(waiter);
    waiter.leave();
    void error.then((timeout) => waiter.reject(timeout));
  }

  #describeRequest({ target, request, keyTemplate }: Waiter | LocalHold): LockEvent {
    const store = this.context.engine.driver.name;
    return { keys: target.keys, keyTemplate, mode: modeOf(target.locks), store, request };
  }

  #emitRequested(waiter: Waiter): void {
    if (!this.context.events.hasListeners("requested")) return;
    this.context.events.emit("requested", { ...this.#describeRequest(waiter), label: waiter.settings.label });
  }

  /** Called once the request has been rejected. */
  emitFailed(waiter: Waiter, error: unknown, outcome: FailedOutcome): void {
    if (!this.context.events.hasListeners("failed")) return;
    const waitedMs = this.context.engine.clock.now() - waiter.startedAt;
    this.context.events.emit("failed", {
      ...this.#describeRequest(waiter),
      waitedMs,
      outcome,
      error,
    });
  }

  #emitAcquired(localHold: LocalHold, waiter: Waiter): void {
    if (!this.context.events.hasListeners("acquired")) return;
    const waitedMs = localHold.grantedAt - waiter.startedAt;
    this.context.events.emit("acquired", { ...this.describe(localHold), waitedMs, label: waiter.settings.label });
  }

  #emitWaiting(waiter: Waiter): void {
    if (!this.context.events.hasListeners("waiting")) return;
    this.context.events.emit("waiting", { ...this.#describeRequest(waiter), label: waiter.settings.label });
  }

  #emitHandedOff(localHold: LocalHold | null): void {
    if (localHold === null || !this.context.events.hasListeners("handedOff")) return;
    this.context.events.emit("handedOff", this.describe(localHold));
  }

  #emitReleased(localHold: LocalHold): void {
    if (!this.context.events.hasListeners("released")) return;
    this.context.events.emit("released", { ...this.describe(localHold), heldMs: this.#heldMs(localHold) });
  }

  #heldMs({ grantedAt }: LocalHold): number {
    return this.context.engine.clock.now() - grantedAt;
  }

  #emitLost(localHold: LocalHold, reason: LostReason): void {
    this.context.events.emit("lost", { ...this.describe(localHold), reason, heldMs: this.#heldMs(localHold) });
  }

  #emitConfirmation(event: "jeopardy" | "restored"): void {
    const { events, engine } = this.context;
    if (this.#localHold === null) return;
    const { activeClaim } = this.#localHold;
    const detail = { ...this.describe(this.#localHold), remainingMs: activeClaim.remainingMs(engine.clock.now()) };
    if (event === "restored") events.emit(event, detail);
    else events.emit(event, { ...detail, error: activeClaim.failure });
  }
}

/** Where a local hold comes from: a waiter, or attach(). */
type RequestOrigin = Pick<Waiter, "target" | "request" | "settings">;

/** One local request while it waits: for the store, or behind other requests of this client. */
export class Waiter implements ScheduledTask {
  previous: Waiter | null = null;
  next: Waiter | null = null;
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  /** `wait: 0`: if the lock is not granted at once, it is busy. */
  readonly noWait: boolean;
  /** tryAcquire(): busy resolves with null instead of an error that names the holder. */
  readonly isTry: boolean;
  readonly startedAt: number;
  readonly request: number = nextRequest();
  /** The queue that it waits in; null once it is settled. */
  queue: LocalQueue | null = null;
  /** The queue that it has joined. */
  #joined: LocalQueue | null = null;
  // a scheduled task: due at the end of the wait
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;
  readonly #resolve: (localHold: LocalHold | null) => void;
  readonly #reject: (error: unknown) => void;
  #onAbort: (() => void) | null = null;

  /** @param resolve receives the local hold, or null if `isTry` and the keys were busy */
  constructor(
    target: LockTarget,
    settings: AcquireSettings,
    isTry: boolean,
    startedAt: number,
    resolve: (localHold: LocalHold | null) => void,
    reject: (error: unknown) => void,
  ) {
    this.target = target;
    this.settings = settings;
    this.noWait = settings.waitMs === 0;
    this.isTry = isTry;
    this.startedAt = startedAt;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Joins a local queue: from now on the wait can time out or be aborted. @throws what addEventListener of the signal throws */
  join(queue: LocalQueue): void {
    const { waitMs, signal } = this.settings;
    if (signal !== undefined) {
      // the reason is the program's own: it may be an error of ours, or null
      this.#onAbort = () => this.queue?.withdraw(this, signal.reason, "cancelled");
      // many waits may share one signal, with a listener each: suppress Node's warning about a leak
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    this.queue = queue;
    this.#joined = queue;
    if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY)
      queue.context.engine.scheduler.schedule(this, this.startedAt + waitMs);
  }

  get keyTemplate(): string | undefined {
    return this.settings.keyTemplate;
  }

  onDue(): void {
    this.queue?.timeOut(this);
  }

  grant(localHold: LocalHold): void {
    this.leave();
    this.#resolve(localHold);
  }

  /** Settles the request with an error, or with null for a busy tryAcquire(); called once, after it has left the queue. */
  reject(error: unknown, outcome: FailedOutcome = outcomeOf(error)): void {
    this.leave();
    if (this.isTry && outcome === "busy") this.#resolve(null);
    else this.#reject(error);
    // after it is settled, like a grant
    this.#joined?.emitFailed(this, error, outcome);
  }

  /** Leaves the queue: from now on the wait can neither time out nor be aborted. */
  leave(): void {
    if (this.heapIndex !== -1) this.queue?.context.engine.scheduler.cancel(this);
    this.queue = null;
    if (this.#onAbort !== null) this.settings.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = null;
  }
}

/** One local holder's time with a claim: from its grant or hand-off until its last handle is released. */
export class LocalHold implements ScheduledTask {
  readonly queue: LocalQueue;
  readonly activeClaim: ActiveClaim;
  readonly target: LockTarget;
  readonly request: number;
  readonly keyTemplate: string | undefined;
  readonly token: bigint;
  readonly grantedAt: number;
  /** The number of unreleased handles: the first one, and one for each request that joined. */
  refCount = 1;
  /** The number of async contexts entered with this lock: while there is one, the lock cannot be detached. */
  openFlows = 0;
  lostReason: LostReason | null = null;
  #abort: AbortController | null = null;
  // a scheduled task: due at the end of maxHold
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  constructor(
    queue: LocalQueue,
    activeClaim: ActiveClaim,
    { target, request, settings }: RequestOrigin,
    token: bigint,
    grantedAt: number,
  ) {
    this.queue = queue;
    this.activeClaim = activeClaim;
    this.target = target;
    this.request = request;
    this.keyTemplate = settings.keyTemplate;
    this.token = token;
    this.grantedAt = grantedAt;
  }

  /** Can requests still join it? Says nothing about the lease. */
  get isOpen(): boolean {
    return this.refCount > 0;
  }

  /** Reads the clocks. If they show that the lease has ended, the loss is reported now: the timer may be late. */
  observe(): number {
    const { engine } = this.queue.context;
    const now = engine.clock.now();
    if (this.isOpen && this.lostReason === null) engine.observe(now, this.activeClaim);
    return now;
  }

  isHeld(now: number): boolean {
    return this.isOpen && this.lostReason === null && this.activeClaim.isHeld(now);
  }

  remainingMs(now: number): number {
    return this.isHeld(now) ? this.activeClaim.remainingMs(now) : 0;
  }

  /** The end of maxHold. */
  onDue(): void {
    if (this.isOpen && this.lostReason === null) this.queue.context.engine.exceedMaxHold(this.activeClaim);
  }

  lose(reason: LostReason): void {
    if (this.lostReason !== null) return;
    this.lostReason = reason;
    this.#abort?.abort(this.toLostError());
  }

  /** Aborted when the lock is lost. Created when first read, and shared by all requests that joined. */
  get signal(): AbortSignal {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      if (this.lostReason !== null) this.#abort.abort(this.toLostError());
    }
    return this.#abort.signal;
  }

  toLostError(): LockLostError {
    const token = this.queue.context.traits.fencing ? this.token : undefined;
    return lockLostError(this.lostReason ?? "expired", this.target.keys, token);
  }

  /** Releases one handle, and the lock with the last one. True if the lock was held until now. */
  release(): boolean | Promise<boolean> {
    this.refCount--;
    return this.isOpen ? this.isHeld(this.observe()) : this.queue.release(this);
  }
}

/** Is enough of the lease left for another holder? Not if a detach is shortening it, which may also hand out a reference. */
function hasEnoughLease({ state, settings, isShortened }: ActiveClaim, now: number): boolean {
  if (state.status !== "held" || state.callState.failures > 0 || isShortened) return false;
  return state.deadline - now > 0.45 * settings.ttlMs;
}

function isFailing({ state }: ActiveClaim): boolean {
  return (state.status === "asking" || state.status === "waiting") && state.callState.failures > 0;
}
