/**
 * Runs the claim machine (src/claim) for every claim of one client: performs its effects, batches calls, routes the store's
 * answers and has the client's only timer. All decisions about a claim are made by the machine.
 */

import { isHeld, resumeClaim, startClaim, step } from "../claim/machine.ts";
import type { ClaimEvent, ClaimSettings, Step } from "../claim/state.ts";
import { isFatalError } from "../errors.ts";
import type { Answer, Claim, ClaimId, Driver } from "../spi/driver.ts";
import type { Clock, Timer } from "../util/clock.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import { SlotMap } from "../util/slot-map.ts";
import { SuspendDetector } from "../util/suspend-detector.ts";
import type { ClaimListener } from "./active-claim.ts";
import { ActiveClaim } from "./active-claim.ts";
import { splitBatches } from "./batches.ts";
import type { EngineOptions } from "./engine-options.ts";
import type { Events } from "./events.ts";
import type { ReleaseCallback } from "./release-queue.ts";
import { callDriver, ReleaseQueue } from "./release-queue.ts";
import type { ScheduledTask } from "./scheduled-task.ts";
import { StoreMonitor } from "./store-monitor.ts";

/** When the timer fires for a renewal, renewals due within this time join its batch. */
const EARLY_RUN_MS = 1_000;

export class Engine {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly #events: Events;
  readonly #claims = new SlotMap<ClaimId, ActiveClaim>();
  readonly #deadlines = new DeadlineHeap<ScheduledTask>();
  readonly #timer: Timer;
  readonly #releaseQueue: ReleaseQueue;
  readonly #suspendDetector: SuspendDetector;
  readonly #storeMonitor: StoreMonitor;
  #pendingRenewals: ActiveClaim[] = [];
  /** The total time for which this machine was suspended, as far as it was detected. */
  suspendedMs = 0;
  readonly #onDue = (activeClaim: ActiveClaim, now: number, withinMs: number): void =>
    this.#apply(activeClaim, { type: "due", random: this.random(), withinMs }, now);

  constructor({ driver, clock, random, events }: EngineOptions) {
    this.driver = driver;
    this.clock = clock;
    this.random = random;
    this.#events = events;
    this.#timer = clock.timer(() => this.#onTimer());
    this.#suspendDetector = new SuspendDetector(clock);
    this.#storeMonitor = new StoreMonitor(events, clock);
    this.#releaseQueue = new ReleaseQueue({
      driver,
      clock,
      random,
      deadlines: this.#deadlines,
      armTimer: () => this.#armTimer(),
      onAnswered: ({ claim }) => this.#recordContact(claim),
      onFailed: ({ claim }, sentAt, error) => this.#storeMonitor.onFailure(error, sentAt, driver.shardOf?.(claim)),
    });
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

  /** Resumes a claim that another client made and detached. */
  resume(
    claim: Claim,
    settings: ClaimSettings,
    listener: ClaimListener,
    token: bigint,
    tokenCount: number,
  ): ActiveClaim {
    const now = this.clock.now();
    return this.#addClaim(claim, settings, listener, resumeClaim(settings, now, token, tokenCount), now);
  }

  /** Releases a claim, held or waiting. `onReleased` receives the store's reply exactly once, possibly late. */
  release(activeClaim: ActiveClaim, onReleased?: ReleaseCallback, now: number = this.clock.now()): void {
    if (onReleased !== undefined) activeClaim.onReleased = onReleased;
    this.#apply(activeClaim, { type: "left" }, now);
  }

  /** The holder has exceeded maxHold: gives the lock up although its lease has not ended. */
  exceedMaxHold(activeClaim: ActiveClaim): void {
    this.#apply(activeClaim, { type: "overstayed", reason: "maxHold" }, this.clock.now());
  }

  /** Drops a claim without releasing it: another client has it now. */
  forget(activeClaim: ActiveClaim): void {
    this.#claims.delete(activeClaim.claim.id);
    this.#deadlines.remove(activeClaim);
    activeClaim.forget();
    this.#armTimer();
  }

  /** Is the claim held, by all clocks? Reads them now (`now` was read just before), since the timer may be late. */
  isHeld(activeClaim: ActiveClaim, now: number = this.clock.now()): boolean {
    this.elapsedMs(now);
    if (isHeld(activeClaim.state, now)) return true;
    // report the loss now instead of waiting for the late timer
    this.#onDue(activeClaim, now, 0);
    return isHeld(activeClaim.state, now);
  }

  /** Schedules a task on the client's timer, for example the end of a wait. */
  schedule(item: ScheduledTask, dueAt: number): void {
    this.#deadlines.set(item, Math.ceil(dueAt));
    this.#armTimer();
  }

  cancel(item: ScheduledTask): void {
    this.#deadlines.remove(item);
  }

  /** The clock's time plus all detected suspensions, for intervals that may span one. Checks for a suspension now. */
  elapsedMs(now: number = this.clock.now()): number {
    const suspendedMs = this.#suspendDetector.suspendedMs(now);
    if (suspendedMs > 0) this.#onSuspend(suspendedMs);
    return now + this.suspendedMs;
  }

  /** Returns a copy of the list of live claims. */
  listClaims(): ActiveClaim[] {
    return this.#claims.values();
  }

  /** Handles a push from the store; see Notify in the SPI. */
  notify(id: ClaimId | null, answer?: Answer): void {
    const now = this.clock.now();
    if (id === null) {
      for (const activeClaim of this.listClaims()) this.#apply(activeClaim, { type: "notified" }, now);
      return;
    }
    const activeClaim = this.#claims.get(id);
    if (activeClaim === undefined) return;
    if (answer?.state === "held") this.elapsedMs(now);
    if (answer !== undefined) activeClaim.recordAnswer(answer, now);
    this.#apply(activeClaim, answer === undefined ? { type: "notified" } : { type: "pushed", answer }, now);
  }

  /** Sends the renewals collected in this turn, so that they go out before the caller's next call. */
  flushRenewals(): void {
    if (this.#pendingRenewals.length > 0) this.#sendRenewals();
  }

  /** Settles when the store has answered every release or has certainly dropped the claim. */
  whenIdle(): Promise<void> {
    return this.#releaseQueue.whenIdle();
  }

  /** Runs all scheduled tasks and stops the timer; the last call on an engine. */
  stop(): void {
    this.#releaseQueue.stop();
    for (const item of this.#deadlines.takeAllDue(Number.POSITIVE_INFINITY)) item.onDue(this.clock.now(), 0);
    this.#timer.keepAlive(false);
    this.#timer.stop();
  }

  #addClaim(claim: Claim, settings: ClaimSettings, listener: ClaimListener, firstStep: Step, now: number): ActiveClaim {
    const activeClaim = new ActiveClaim(claim, settings, listener, firstStep.state, now, this.#onDue);
    this.#claims.add(claim.id, activeClaim);
    this.#perform(activeClaim, firstStep, now);
    return activeClaim;
  }

  #apply(activeClaim: ActiveClaim, event: ClaimEvent, now: number): void {
    if (activeClaim.isForgotten) return; // a late answer must not release a claim that another client holds now
    this.#perform(activeClaim, step(activeClaim.state, event, now, activeClaim.settings), now);
  }

  #perform(activeClaim: ActiveClaim, { state, effects }: Step, now: number): void {
    const previousStatus = activeClaim.state.status;
    activeClaim.state = state;
    if (state.status === "over" && previousStatus !== "over") this.#claims.delete(activeClaim.claim.id);
    for (const effect of effects) {
      // the listener may have changed the state during an earlier effect
      if (activeClaim.state !== state && effect !== "release") break;
      this.#performEffect(activeClaim, effect, now);
    }
    if (state.status === "waiting" && previousStatus === "asking") activeClaim.listener.onQueued();
    const wakeAt = activeClaim.nextWakeAt();
    if (wakeAt === Number.POSITIVE_INFINITY) this.#deadlines.remove(activeClaim);
    // rounded up to milliseconds like timers: tasks scheduled in one turn then become due together
    else this.#deadlines.set(activeClaim, Math.ceil(wakeAt));
    this.#armTimer();
  }

  #performEffect(activeClaim: ActiveClaim, effect: Step["effects"][number], now: number): void {
    const { listener, state } = activeClaim;
    switch (effect) {
      case "ask":
        return this.#callClaim(activeClaim, now);
      case "renew":
        activeClaim.lastSentAt = now;
        if (this.#pendingRenewals.push(activeClaim) === 1) queueMicrotask(() => this.#sendRenewals());
        return;
      case "grant":
        return listener.onGranted(now);
      case "refuse":
        return listener.onBusy();
      case "expire":
        return listener.onExpired();
      case "reject":
        return listener.onFailed(activeClaim.failure);
      case "lose":
        return listener.onLost(state.status === "lost" ? state.reason : "unknown");
      case "jeopardy":
        return activeClaim.markUnconfirmed();
      case "restored":
        return activeClaim.markConfirmed();
      case "release": {
        const { claim, settings, lastSentAt } = activeClaim;
        const hasUnansweredClaim = state.status === "over" && state.hasUnansweredClaim;
        if (activeClaim.pendingRelease !== null) activeClaim.pendingRelease.attempts++;
        activeClaim.pendingRelease = this.#releaseQueue.add(
          claim,
          settings.ttlMs,
          hasUnansweredClaim,
          lastSentAt,
          activeClaim.takeOnReleased(),
        );
      }
    }
  }

  #callClaim(activeClaim: ActiveClaim, now: number): void {
    activeClaim.lastSentAt = now;
    const call = activeClaim.lastCall;
    callDriver(() => this.driver.claim(activeClaim.claim)).then(
      (answer) => this.#onAnswer(activeClaim, call, now, answer),
      (error: unknown) => this.#onCallFailed(activeClaim, call, now, error),
    );
  }

  #sendRenewals(): void {
    const renewals = this.#pendingRenewals;
    this.#pendingRenewals = [];
    for (const batch of splitBatches(renewals, this.driver)) this.#renewBatch(batch);
  }

  #renewBatch(batch: readonly ActiveClaim[]): void {
    // a claim may have been released later in the turn that scheduled its renewal
    const renewable = batch.filter(
      ({ state, isShortened }) => state.status !== "over" && state.status !== "lost" && !isShortened,
    );
    if (renewable.length === 0) return;
    const sentAt = this.clock.now();
    const calls = renewable.map(({ lastCall }) => lastCall);
    callDriver(() => this.driver.renew(renewable.map(({ claim }) => claim))).then(
      (answers) => {
        for (const [index, activeClaim] of renewable.entries()) {
          const answer = answers[index];
          if (answer !== undefined) this.#onAnswer(activeClaim, calls[index] as number, sentAt, answer);
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
        for (const [index, activeClaim] of renewable.entries())
          this.#onCallFailed(activeClaim, calls[index] as number, sentAt, error);
      },
    );
  }

  #recordContact(claim: Claim): void {
    this.#storeMonitor.recordContact(this.clock.now(), this.driver.shardOf?.(claim));
  }

  #onAnswer(activeClaim: ActiveClaim, call: number, sentAt: number, answer: Answer): void {
    const now = this.clock.now();
    // before using the answer: a suspension since the call was sent shortens the lease
    if (answer.state === "held") this.elapsedMs(now);
    this.#recordContact(activeClaim.claim);
    activeClaim.recordAnswer(answer, now);
    const hasClockStepped = this.#storeMonitor.onAnswer(answer, sentAt, now);
    this.#apply(activeClaim, { type: "answered", call, sentAt, answer }, now);
    if (call > activeClaim.callAtClockStep && isHeld(activeClaim.state, now)) activeClaim.markConfirmed();
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
    this.elapsedMs(now);
    for (const item of this.#deadlines.takeAllDue(now)) item.onDue(now, 0);
    if (this.#pendingRenewals.length > 0) this.#runEarlyTasks(now);
    this.#armTimer();
  }

  /** A renewal is sent anyway: adds those that are due soon to its batch. */
  #runEarlyTasks(now: number): void {
    for (const item of this.#deadlines.takeAllDue(now + EARLY_RUN_MS)) {
      if (item.mayRunEarly) item.onDue(now, EARLY_RUN_MS);
      else this.#deadlines.set(item, item.dueAt);
    }
  }

  #onSuspend(byMs: number): void {
    this.suspendedMs += byMs;
    this.#events.emit("clockStep", { byMs, source: "client" });
    const now = this.clock.now();
    for (const activeClaim of this.listClaims()) this.#apply(activeClaim, { type: "slept", byMs }, now);
  }

  /** A step of the store's clock may have ended leases: every held claim is unconfirmed until it has been rechecked. */
  #onStoreClockStep(now: number): void {
    for (const activeClaim of this.listClaims()) {
      if (activeClaim.state.status === "held") activeClaim.onClockStep();
      this.#apply(activeClaim, { type: "notified" }, now);
    }
  }

  #armTimer(): void {
    this.#timer.set(this.#deadlines.nextDueAt());
    this.#timer.keepAlive(this.#claims.size > 0 || this.#releaseQueue.size > 0);
  }
}
