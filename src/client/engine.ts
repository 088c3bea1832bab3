/**
 * Runs the claim machine (src/claim) for every claim of one client: performs its effects, batches calls, routes the
 * store's answers and has the client's only timer. All decisions about a claim are made by the machine.
 *
 * Invariant: queries (isHeld, remainingMs, elapsedMs) change nothing. Reading the clocks may show a suspension or the
 * end of a lease before the timer does; observe() alone applies what they show: it steps claims and may call listeners.
 * The public methods of a lock call it before they answer, and its callers check their own state again afterwards.
 */

import { RENEWALS_PER_LEASE } from "../claim/lease-shares.ts";
import { isHeld, isReusable, isVerified, isWanted, nextWakeAt, startClaim, step } from "../claim/machine.ts";
import type { ClaimEvent, ClaimSettings, ClaimState, Effect, Step } from "../claim/state.ts";
import type { ClosedError, LostReason, PauseReason } from "../errors.ts";
import { isFatalError } from "../errors.ts";
import type { Answer, Claim, ClaimId, Driver, Pause, TokenRange } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import { runInMicrotask } from "../util/microtask.ts";
import { SlotMap } from "../util/slot-map.ts";
import { SuspendDetector } from "../util/suspend-detector.ts";
import { rejectOnThrow } from "../util/timeout.ts";
import type { Events } from "./events.ts";
import type { PendingRelease, ReleaseCallback } from "./release-queue.ts";
import { MAX_BATCH, ReleaseQueue, splitBatches } from "./release-queue.ts";
import type { EarlyRun, ScheduledTask } from "./scheduler.ts";
import { Scheduler } from "./scheduler.ts";
import { StoreMonitor } from "./store-monitor.ts";

/**
 * Which calls are sent early, together with those that are due: by time, and by share of their own lease. A renewal is
 * due every third of a lease. Two claims that are renewed at other times meet after at most one renewal, since one of
 * them is due within half of that interval, a sixth of the lease, when the other is. (A driver may only look while more
 * than seven eighths of a lease remain; these have less.) Rechecks and retries are due more often, and would pull
 * renewals forward again and again: only calls that are due soon join them.
 */
const WITH_RENEWAL: EarlyRun = { withinMs: 5_000, leaseShare: 1 / (2 * RENEWALS_PER_LEASE) };
const WITH_RECHECK: EarlyRun = { withinMs: 1_000, leaseShare: 1 / 24 };

/** What the machine has decided about a claim that its listener has to carry out. */
export type ListenerEffect = Exclude<Effect, "ask" | "renew" | "release">;

/** The part of the client that has a claim. Called synchronously; may start or release claims in turn. */
export interface ClaimListener {
  onEffect(effect: ListenerEffect, now: number): void;
  /** A renewal of the held claim is about to be sent: how many tokens it should have in all; 0: as many as it has. */
  tokensToRenew(): number;
  /** The client closes: no request may wait any longer. */
  onClose(error: ClosedError): void;
  /** Gives up the lock if the claim is held: an idle one, or one whose holder has not released it. */
  giveBack(now: number): void;
}

/** The claims of this client that the store has named in a grant: they wait directly behind it. See grant.ts. */
interface NamedSuccessors {
  /** The first token of that grant. */
  readonly token: bigint;
  readonly ids: readonly ClaimId[];
}

/** The engine of a claim. */
interface ActiveClaimEngine {
  claimDue(activeClaim: ActiveClaim, now: number, withinMs: number): void;
}

/** One claim that the engine runs: the state of its machine, and its listener. */
export class ActiveClaim implements ScheduledTask {
  readonly claim: Claim;
  readonly settings: ClaimSettings;
  /** Changes when an attached claim is confirmed, and when a grant passes to a successor. */
  listener: ClaimListener;
  state: ClaimState;
  /** When the last call for this claim was sent. One ttl later the store has dropped the claim. */
  lastSentAt: number;
  /** The error of the last failed call. */
  lastError: unknown = null;
  /** Why the claim has ended, as the store's last answer says; null: that answer had another state. */
  endReason: LostReason | null = null;
  /** The lease ends at this time at the earliest, by the last answer to a call; 0: none has come. */
  leaseEndsAt = 0;
  /** The pause in the store's last answer, and when it ends; null if there was none. */
  pause: { readonly reason: PauseReason; readonly until: number } | null = null;
  /** Receives the result of the release. */
  onReleased: ReleaseCallback = noop;
  /**
   * The release in progress. A late answer that shows an entry in the queue causes a second one, which may arrive
   * first.
   */
  pendingRelease: PendingRelease | null = null;
  successors: NamedSuccessors | null = null;
  readonly mayRunEarly = true;
  dueAt = 0;
  heapIndex = -1;
  previousSameDue: HeapItem | undefined = undefined;
  nextSameDue: HeapItem | undefined = undefined;
  readonly #engine: ActiveClaimEngine;

  constructor(
    claim: Claim,
    settings: ClaimSettings,
    listener: ClaimListener,
    state: ClaimState,
    now: number,
    engine: ActiveClaimEngine,
  ) {
    this.claim = claim;
    this.settings = settings;
    this.listener = listener;
    this.state = state;
    this.lastSentAt = now;
    this.#engine = engine;
  }

  onDue(now: number, early?: EarlyRun): void {
    const withinMs = early === undefined ? 0 : Math.min(early.withinMs, this.settings.ttlMs * early.leaseShare);
    this.#engine.claimDue(this, now, withinMs);
  }

  /** Is it held, by the local clock? */
  isHeld(now: number): boolean {
    return isHeld(this.state, now);
  }

  /** Does another claim wait for it, as far as known? */
  get isWanted(): boolean {
    return isWanted(this.state);
  }

  /** What is left of the lease by the local clock; 0 if it is not held. */
  remainingMs(now: number): number {
    return this.state.status === "held" ? Math.max(this.state.deadline - now, 0) : 0;
  }

  /** Takes over what an answer of the store says besides the state. */
  recordAnswer(answer: Answer, now: number): void {
    this.endReason = answer.state === "none" ? (answer.reason ?? "unknown") : null;
    const pause = answer.state === "held" ? undefined : answer.paused;
    this.pause = pause === undefined ? null : { reason: pause.reason, until: now + pause.remainingMs };
  }

  /** The pause that the store reported last, if it is not over yet. */
  currentPause(now: number): Pause | undefined {
    const { pause } = this;
    if (pause === null || pause.until <= now) return undefined;
    return { reason: pause.reason, remainingMs: pause.until - now };
  }

  /** Why the last call failed. */
  get failure(): unknown {
    return this.lastError ?? new Error("the store did not answer in time");
  }

  /** The number of its last call. */
  get lastCall(): number {
    return this.state.status === "lost" || this.state.status === "done" ? 0 : this.state.callState.calls;
  }

  /** Returns the callback and clears it: only the first release reports its result. */
  takeOnReleased(): ReleaseCallback {
    const { onReleased } = this;
    this.onReleased = noop;
    return onReleased;
  }

  nextWakeAt(): number {
    return nextWakeAt(this.state, this.settings);
  }
}

export class Engine {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly #events: Events;
  readonly #claims = new SlotMap<ClaimId, ActiveClaim>();
  /** Also runs the ends of waits and of maxHold. */
  readonly scheduler: Scheduler;
  readonly #releaseQueue: ReleaseQueue;
  readonly #suspendDetector: SuspendDetector;
  readonly #storeMonitor: StoreMonitor;
  #pendingRenewals: ActiveClaim[] = [];
  /** One of them is due because of its lease: it is neither a recheck nor a retry. */
  #hasPendingRenewal = false;
  /** The present epoch of the store: see AnsweredEvent. */
  #epoch = 0;
  /** The total time for which this machine was suspended, as far as it was detected. */
  suspendedMs = 0;

  /** @param random returns a number from 0 to 1 */
  constructor(driver: Driver, clock: Clock, random: () => number, events: Events) {
    this.driver = driver;
    this.clock = clock;
    this.random = random;
    this.#events = events;
    this.scheduler = new Scheduler(clock, () => this.#onTimer());
    this.#suspendDetector = new SuspendDetector(clock);
    this.#storeMonitor = new StoreMonitor(events, clock);
    this.#releaseQueue = new ReleaseQueue(driver, random, this.scheduler, this.#storeMonitor);
  }

  /** The number of live claims and unanswered releases. */
  get size(): number {
    return this.#claims.size + this.#releaseQueue.size;
  }

  /** Starts a claim, now or after a delay. First sends the releases of this turn, so that they are ahead of it. */
  start(claim: Claim, settings: ClaimSettings, listener: ClaimListener, now: number, delayMs = 0): ActiveClaim {
    this.#releaseQueue.flush();
    return this.#addClaim(claim, settings, listener, startClaim(settings, now, delayMs), now);
  }

  /** Continues with a claim that another client made and detached. */
  resume(claim: Claim, settings: ClaimSettings, listener: ClaimListener, firstStep: Step, now: number): ActiveClaim {
    return this.#addClaim(claim, settings, listener, firstStep, now);
  }

  /** Releases a claim, held or waiting. */
  release(activeClaim: ActiveClaim, now: number = this.clock.now()): void {
    this.#apply(activeClaim, { type: "released" }, now);
  }

  /**
   * Releases a lock, and says whether it was held until now. If its lease was valid by the local clock (`isHeld`), it
   * was, unless the store answers within the lease that the claim did not exist. Else it was lost, unless the store
   * answers that the claim existed.
   */
  releaseLock(activeClaim: ActiveClaim, isHeld: boolean, now: number): Promise<boolean> {
    const { state } = activeClaim;
    const expiresAt = state.status === "held" ? this.#elapsedMs(state.deadline) : 0;
    return new Promise((resolve) => {
      activeClaim.onReleased = (existed) =>
        resolve(isHeld ? existed !== false || this.#elapsedMs(this.observe()) >= expiresAt : existed === true);
      this.release(activeClaim, now);
    });
  }

  /** The holder has exceeded maxHold: gives the lock up although its lease has not ended. */
  exceedMaxHold(activeClaim: ActiveClaim): void {
    this.#apply(activeClaim, { type: "maxHoldExceeded" }, this.clock.now());
  }

  /** A detach of the claim is sent now, with or without a shorter lease. */
  startDetaching(activeClaim: ActiveClaim, isShortening: boolean): void {
    const now = this.clock.now();
    // the store may extend the lease even if its answer is lost: a later release is repeated for a full ttl from now
    activeClaim.lastSentAt = now;
    this.#apply(activeClaim, { type: "detaching", isShortening }, now);
  }

  /** Drops a claim without releasing it: another client has it now. */
  forget(activeClaim: ActiveClaim): void {
    this.#apply(activeClaim, { type: "transferred" }, this.clock.now());
    this.driver.forget?.(activeClaim.claim);
  }

  /** While all claims are idle, neither the timer nor the driver's connections keep the process alive. */
  setIdle({ claim }: ActiveClaim, isIdle: boolean): void {
    if (isIdle) this.scheduler.unref();
    else this.scheduler.ref();
    this.driver.setIdle?.(claim, isIdle);
  }

  /**
   * Applies what the clocks show now, since the timer may be late: a suspension of this machine to all claims, the end
   * of its lease to this one. Returns `now`.
   */
  observe(now: number = this.clock.now(), activeClaim?: ActiveClaim): number {
    const suspendedMs = this.#suspendDetector.suspendedMs(now);
    if (suspendedMs > 0) this.#onSuspend(suspendedMs);
    if (activeClaim !== undefined && !activeClaim.isHeld(now)) this.claimDue(activeClaim, now, 0);
    return now;
  }

  /** The time of a claim's next step has come, or will within withinMs. */
  claimDue(activeClaim: ActiveClaim, now: number, withinMs: number): void {
    this.#apply(activeClaim, { type: "due", random: this.random(), withinMs }, now);
  }

  /** See isVerified() of the machine. */
  isVerified({ state }: ActiveClaim): boolean {
    return isVerified(state, this.#epoch);
  }

  /** See isReusable() of the machine. */
  isReusable({ state, settings }: ActiveClaim, now: number): boolean {
    return isReusable(state, now, this.#epoch, settings);
  }

  /** Returns the live claim of this client with this id. */
  find(id: ClaimId): ActiveClaim | undefined {
    return this.#claims.get(id);
  }

  /** Returns a copy of the list of live claims. */
  listClaims(): ActiveClaim[] {
    return this.#claims.values();
  }

  // the store's pushes; see DriverEvents

  pushed(id: ClaimId, answer: Answer): void {
    const activeClaim = this.#claims.get(id);
    if (activeClaim === undefined) return;
    const now = this.clock.now();
    if (answer.state === "held") this.observe(now);
    activeClaim.recordAnswer(answer, now);
    if (answer.state === "held" && answer.successors !== undefined)
      activeClaim.successors = { token: answer.token, ids: answer.successors };
    this.#apply(activeClaim, { type: "pushed", answer }, now);
  }

  recheck(id: ClaimId): void {
    const activeClaim = this.#claims.get(id);
    if (activeClaim !== undefined) this.#apply(activeClaim, { type: "recheck" }, this.clock.now());
  }

  disconnected(): void {
    this.#epoch++;
  }

  reconnected(): void {
    const now = this.clock.now();
    for (const activeClaim of this.listClaims()) this.#apply(activeClaim, { type: "recheck" }, now);
    this.#releaseQueue.retryNow();
  }

  recalled(id: ClaimId): void {
    const activeClaim = this.#claims.get(id);
    if (activeClaim !== undefined) this.#apply(activeClaim, { type: "recalled" }, this.clock.now());
  }

  heldTokens(id: ClaimId): TokenRange | null {
    const now = this.observe();
    const state = this.#claims.get(id)?.state;
    return state?.status === "held" && isHeld(state, now) ? { token: state.token, tokenCount: state.tokenCount } : null;
  }

  /** Sends the renewals collected in this turn, so that they go out before the caller's next call. */
  flushRenewals(): void {
    if (this.#pendingRenewals.length > 0) this.#sendRenewals();
  }

  /** Settles when the store has answered every release or has certainly dropped the claim. */
  whenIdle(): Promise<void> {
    return this.#releaseQueue.whenIdle();
  }

  /** The last call on an engine. */
  stop(): void {
    this.#releaseQueue.stop();
    this.scheduler.stop();
  }

  #addClaim(claim: Claim, settings: ClaimSettings, listener: ClaimListener, firstStep: Step, now: number): ActiveClaim {
    const activeClaim = new ActiveClaim(claim, settings, listener, firstStep.state, now, this);
    this.#claims.add(claim.id, activeClaim);
    this.scheduler.ref();
    this.#perform(activeClaim, firstStep, now);
    return activeClaim;
  }

  #apply(activeClaim: ActiveClaim, event: ClaimEvent, now: number): void {
    this.#perform(activeClaim, step(activeClaim.state, event, now, activeClaim.settings), now);
  }

  #perform(activeClaim: ActiveClaim, { state, effects }: Step, now: number): void {
    const isDone = state.status === "done" && activeClaim.state.status !== "done";
    activeClaim.state = state;
    if (isDone) this.#claims.delete(activeClaim.claim.id);
    for (const effect of effects) {
      this.#performEffect(activeClaim, effect, now);
      // the listener has released the claim meanwhile, for example: what that step says counts
      if (activeClaim.state !== state) break;
    }
    const wakeAt = activeClaim.nextWakeAt();
    if (wakeAt === Number.POSITIVE_INFINITY) {
      this.scheduler.cancel(activeClaim);
      this.scheduler.arm();
    } else this.scheduler.schedule(activeClaim, wakeAt);
    if (isDone) this.scheduler.unref();
  }

  #performEffect(activeClaim: ActiveClaim, effect: Effect, now: number): void {
    const { listener, state } = activeClaim;
    switch (effect) {
      case "ask":
        return this.#callClaim(activeClaim, now);
      case "renew":
        if (now - activeClaim.lastSentAt >= activeClaim.settings.ttlMs * WITH_RENEWAL.leaseShare)
          this.#hasPendingRenewal = true;
        activeClaim.lastSentAt = now;
        if (this.#pendingRenewals.push(activeClaim) === 1) runInMicrotask(() => this.#sendRenewals());
        return;
      case "release": {
        const hasUnansweredClaim = state.status === "done" && state.hasUnansweredClaim;
        const onReleased = activeClaim.takeOnReleased();
        activeClaim.pendingRelease = this.#releaseQueue.add(activeClaim, hasUnansweredClaim, onReleased);
        return;
      }
      default:
        return listener.onEffect(effect, now);
    }
  }

  #callClaim(activeClaim: ActiveClaim, now: number): void {
    activeClaim.lastSentAt = now;
    const call = activeClaim.lastCall;
    const epoch = this.#epoch;
    rejectOnThrow(() => this.driver.claim(activeClaim.claim)).then(
      (answer) => this.#onAnswer(activeClaim, call, now, epoch, answer),
      (error: unknown) => this.#onCallFailed(activeClaim, call, now, error),
    );
  }

  #sendRenewals(): void {
    const renewals = this.#pendingRenewals;
    this.#pendingRenewals = [];
    this.#hasPendingRenewal = false;
    for (const batch of splitBatches(renewals, this.driver)) this.#renewBatch(batch);
  }

  #renewBatch(batch: readonly ActiveClaim[]): void {
    // a claim may have been released, or its detach sent, later in the turn that scheduled its renewal
    const renewable = batch.filter(
      ({ state }) =>
        state.status !== "done" &&
        state.status !== "lost" &&
        (state.status !== "held" || state.transfer !== "shortening"),
    );
    if (renewable.length === 0) return;
    const sentAt = this.clock.now();
    const epoch = this.#epoch;
    const calls = renewable.map(({ lastCall }) => lastCall);
    const claims = renewable.map(({ claim }) => claim);
    const tokenCounts = renewable.map(({ state, listener }) =>
      state.status === "held" ? listener.tokensToRenew() : 0,
    );
    const hasTokenCounts = tokenCounts.some((count) => count > 0);
    rejectOnThrow(() => (hasTokenCounts ? this.driver.renew(claims, tokenCounts) : this.driver.renew(claims))).then(
      (answers) => {
        this.#emitRenewed(renewable.length, sentAt, undefined);
        for (const [index, activeClaim] of renewable.entries()) {
          const answer = answers[index];
          if (answer !== undefined) this.#onAnswer(activeClaim, calls[index] as number, sentAt, epoch, answer);
          else
            this.#onCallFailed(
              activeClaim,
              calls[index] as number,
              sentAt,
              new Error(`${this.driver.name}: no answer`),
            );
        }
      },
      (error: unknown) => {
        this.#emitRenewed(renewable.length, sentAt, error);
        for (const [index, activeClaim] of renewable.entries())
          this.#onCallFailed(activeClaim, calls[index] as number, sentAt, error);
      },
    );
  }

  #emitRenewed(claims: number, sentAt: number, error: unknown): void {
    if (!this.#events.hasListeners("renewed")) return;
    const tookMs = this.clock.now() - sentAt;
    this.#events.emit("renewed", { store: this.driver.name, claims, tookMs, error });
  }

  #onAnswer(activeClaim: ActiveClaim, call: number, sentAt: number, epoch: number, answer: Answer): void {
    const now = this.clock.now();
    // before using the answer: a suspension since the call was sent shortens the lease
    if (answer.state === "held") this.observe(now);
    this.#storeMonitor.recordContact(now, this.driver.shardOf?.(activeClaim.claim));
    activeClaim.recordAnswer(answer, now);
    if (answer.state !== "none") activeClaim.leaseEndsAt = sentAt + answer.remainingMs;
    const hasClockStepped = this.#storeMonitor.onAnswer(answer, sentAt, now);
    this.#apply(activeClaim, { type: "answered", call, sentAt, epoch, answer }, now);
    if (hasClockStepped) this.#onStoreClockStep(now);
  }

  #onCallFailed(activeClaim: ActiveClaim, call: number, sentAt: number, error: unknown): void {
    activeClaim.lastError = error;
    this.#storeMonitor.onFailure(error, sentAt, this.driver.shardOf?.(activeClaim.claim));
    this.#apply(
      activeClaim,
      { type: "failed", call, isFatal: isFatalError(error), random: this.random() },
      this.clock.now(),
    );
  }

  #onTimer(): void {
    const now = this.clock.now();
    this.observe(now);
    this.scheduler.runDue(now);
    // a call is sent anyway: those that are due soon fill its batch
    const pendingCount = this.#pendingRenewals.length;
    if (pendingCount > 0) {
      const early = this.#hasPendingRenewal ? WITH_RENEWAL : WITH_RECHECK;
      this.scheduler.runEarly(now, early, MAX_BATCH - (pendingCount % MAX_BATCH));
    }
    this.scheduler.arm();
  }

  /** The time plus all suspensions detected so far, for intervals that may span one. */
  #elapsedMs(now: number): number {
    return now + this.suspendedMs;
  }

  #onSuspend(byMs: number): void {
    this.suspendedMs += byMs;
    this.#events.emit("clockStep", { byMs, source: "client" });
    const now = this.clock.now();
    for (const activeClaim of this.listClaims()) this.#apply(activeClaim, { type: "suspended", byMs }, now);
  }

  /** A step of the store's clock may have ended leases: every held claim is doubtful until it has been rechecked. */
  #onStoreClockStep(now: number): void {
    const epoch = ++this.#epoch;
    for (const activeClaim of this.listClaims()) this.#apply(activeClaim, { type: "clockStepped", epoch }, now);
  }
}

function noop(): void {
  // the default: no caller waits for the release
}
