/**
 * Runs core/claim for every claim of one client: performs effects, batches calls, routes what the store says, and holds
 * the only timer. It decides nothing about claims.
 */

import type { Clock, Timer } from "../clock.ts";
import { adopt, begin, believes, step } from "../core/claim.ts";
import type { ClaimEvent, Step, Terms } from "../core/claim-state.ts";
import { Schedule } from "../core/schedule.ts";
import { SlotMap } from "../core/slot-map.ts";
import { isFatal } from "../errors.ts";
import type { Answer, Claim, ClaimId, Driver } from "../spi/driver.ts";
import { batchesOf } from "./batches.ts";
import { SleepWatch } from "./clock-watch.ts";
import type { EngineOptions } from "./engine-options.ts";
import type { Events } from "./events.ts";
import type { Released } from "./releases.ts";
import { attempt, Releases } from "./releases.ts";
import { StoreHealth } from "./store-health.ts";
import type { Timed } from "./timed.ts";
import type { ClaimOwner } from "./tracked.ts";
import { Tracked } from "./tracked.ts";

/** When the timer fires, calls due within this time ride along. */
const RIDE_MS = 1_000;

export class Engine {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly #events: Events;
  readonly #tracked = new SlotMap<ClaimId, Tracked>();
  readonly #schedule = new Schedule<Timed>();
  readonly #timer: Timer;
  readonly #releases: Releases;
  readonly #sleep: SleepWatch;
  readonly #health: StoreHealth;
  #renewals: Tracked[] = [];
  /** All that the machine was seen to sleep so far. */
  sleptMs = 0;
  readonly #due = (tracked: Tracked, now: number, withinMs: number): void =>
    this.#apply(tracked, { type: "due", random: this.random(), withinMs }, now);

  constructor({ driver, clock, random, events }: EngineOptions) {
    this.driver = driver;
    this.clock = clock;
    this.random = random;
    this.#events = events;
    this.#timer = clock.timer(() => this.#tick());
    this.#sleep = new SleepWatch(clock);
    this.#health = new StoreHealth(events, clock);
    this.#releases = new Releases({
      driver,
      clock,
      random,
      schedule: this.#schedule,
      arm: () => this.#arm(),
      heard: ({ claim }) => this.#heard(claim),
      failed: ({ claim }, sentAt, error) => this.#health.failed(error, sentAt, driver.shardOf?.(claim)),
    });
  }

  /** Claims alive, and releases not yet answered. */
  get size(): number {
    return this.#tracked.size + this.#releases.size;
  }

  /** Makes a claim, now or after a delay. What has been left in this turn is released first. */
  start(claim: Claim, terms: Terms, owner: ClaimOwner, now: number, delayMs = 0): Tracked {
    this.#releases.flush();
    return this.#track(claim, terms, owner, begin(terms, now, delayMs), now);
  }

  /** Takes up a claim that another client made and detached. */
  adopt(claim: Claim, terms: Terms, owner: ClaimOwner, token: bigint, tokens: number): Tracked {
    const now = this.clock.now();
    return this.#track(claim, terms, owner, adopt(terms, now, token, tokens), now);
  }

  /** We want it no more, held or waiting. `released` is told what the store said; it is called once, perhaps late. */
  leave(tracked: Tracked, released?: Released, now: number = this.clock.now()): void {
    if (released !== undefined) tracked.released = released;
    this.#apply(tracked, { type: "left" }, now);
  }

  /** The holder is given up although the lease stands. */
  overstay(tracked: Tracked): void {
    this.#apply(tracked, { type: "overstayed", reason: "maxHold" }, this.clock.now());
  }

  /** Nothing more is done about a claim: it has gone to somebody else. */
  forget(tracked: Tracked): void {
    this.#tracked.delete(tracked.claim.id);
    this.#schedule.remove(tracked);
    tracked.forget();
    this.#arm();
  }

  /** Do we hold it, by every clock we have? Reads them now (`now` was read just before): a timer may be late. */
  believes(tracked: Tracked, now: number = this.clock.now()): boolean {
    this.elapsed(now);
    if (believes(tracked.state, now)) return true;
    // its holder learns now what the timer would have said later
    this.#due(tracked, now, 0);
    return believes(tracked.state, now);
  }

  /** What is due together with the claims: ends of waits, and the like. */
  set(item: Timed, at: number): void {
    this.#schedule.set(item, Math.ceil(at));
    this.#arm();
  }

  unset(item: Timed): void {
    this.#schedule.remove(item);
  }

  /** Our clock's time and all that the machine was seen to sleep: for what may span a sleep. Looks now. */
  elapsed(now: number = this.clock.now()): number {
    const sleptMs = this.#sleep.sleptMs(now);
    if (sleptMs > 0) this.#slept(sleptMs);
    return now + this.sleptMs;
  }

  /** Every live claim; a copy. */
  all(): Tracked[] {
    return this.#tracked.values();
  }

  /** The store speaks first. */
  notify(id: ClaimId | null, answer?: Answer): void {
    const now = this.clock.now();
    if (id === null) {
      for (const tracked of this.all()) this.#apply(tracked, { type: "notified" }, now);
      return;
    }
    const tracked = this.#tracked.get(id);
    if (tracked === undefined) return;
    if (answer?.state === "held") this.elapsed(now);
    if (answer !== undefined) tracked.heard(answer, now);
    this.#apply(tracked, answer === undefined ? { type: "notified" } : { type: "pushed", answer }, now);
  }

  /** Sends the renewals that this turn has brought so far, ahead of whatever else its caller sends. */
  sendRenewals(): void {
    if (this.#renewals.length > 0) this.#renew();
  }

  /** Settles when all that was left has been released, or forgotten by the store. */
  idle(): Promise<void> {
    return this.#releases.idle();
  }

  /** Stops the timer, and ends what still waits for its time. For the very end. */
  stop(): void {
    this.#releases.stop();
    for (const item of this.#schedule.takeAllDue(Number.POSITIVE_INFINITY)) item.due(this.clock.now(), 0);
    this.#timer.keepAlive(false);
    this.#timer.stop();
  }

  #track(claim: Claim, terms: Terms, owner: ClaimOwner, first: Step, now: number): Tracked {
    const tracked = new Tracked(claim, terms, owner, first.state, now, this.#due);
    this.#tracked.add(claim.id, tracked);
    this.#perform(tracked, first, now);
    return tracked;
  }

  #apply(tracked: Tracked, event: ClaimEvent, now: number): void {
    if (tracked.forgotten) return; // a late answer must not release what somebody else holds by now
    this.#perform(tracked, step(tracked.state, event, now, tracked.terms), now);
  }

  #perform(tracked: Tracked, { state, effects }: Step, now: number): void {
    const was = tracked.state.at;
    tracked.state = state;
    if (state.at === "over" && was !== "over") this.#tracked.delete(tracked.claim.id);
    for (const effect of effects) {
      // the owner may have gone on from this state while it was told
      if (tracked.state !== state && effect !== "release") break;
      this.#do(tracked, effect, now);
    }
    if (state.at === "waiting" && was === "asking") tracked.owner.waits();
    const at = tracked.wakeAt();
    if (at === Number.POSITIVE_INFINITY) this.#schedule.remove(tracked);
    // in whole milliseconds, as timers are: what one turn sets comes to stand in one row
    else this.#schedule.set(tracked, Math.ceil(at));
    this.#arm();
  }

  #do(tracked: Tracked, effect: Step["effects"][number], now: number): void {
    const { owner, state } = tracked;
    switch (effect) {
      case "ask":
        return this.#ask(tracked, now);
      case "renew":
        tracked.lastSentAt = now;
        if (this.#renewals.push(tracked) === 1) queueMicrotask(() => this.#renew());
        return;
      case "grant":
        return owner.granted(now);
      case "refuse":
        return owner.refused();
      case "expire":
        return owner.expired();
      case "reject":
        return owner.rejected(tracked.failure);
      case "lose":
        return owner.lost(state.at === "lost" ? state.reason : "unknown");
      case "jeopardy":
        return tracked.doubted();
      case "restored":
        return tracked.confirmed();
      case "release": {
        const { claim, terms, lastSentAt } = tracked;
        const unanswered = state.at === "over" && state.unanswered;
        if (tracked.leaving !== null) tracked.leaving.attempts++;
        tracked.leaving = this.#releases.add(claim, terms.ttlMs, unanswered, lastSentAt, tracked.takeReleased());
      }
    }
  }

  #ask(tracked: Tracked, now: number): void {
    tracked.lastSentAt = now;
    const call = tracked.call;
    attempt(() => this.driver.claim(tracked.claim)).then(
      (answer) => this.#answered(tracked, call, now, answer),
      (error: unknown) => this.#callFailed(tracked, call, now, error),
    );
  }

  #renew(): void {
    const renewals = this.#renewals;
    this.#renewals = [];
    for (const batch of batchesOf(renewals, this.driver)) this.#renewBatch(batch);
  }

  #renewBatch(batch: readonly Tracked[]): void {
    // a claim that is over by now was left in this very turn
    const renewed = batch.filter(
      ({ state, isShortened }) => state.at !== "over" && state.at !== "lost" && !isShortened,
    );
    if (renewed.length === 0) return;
    const sentAt = this.clock.now();
    const calls = renewed.map(({ call }) => call);
    attempt(() => this.driver.renew(renewed.map(({ claim }) => claim))).then(
      (answers) => {
        for (const [at, tracked] of renewed.entries()) {
          const answer = answers[at];
          if (answer !== undefined) this.#answered(tracked, calls[at] as number, sentAt, answer);
          else this.#callFailed(tracked, calls[at] as number, sentAt, new Error(`${this.driver.name}: no answer`));
        }
      },
      (error: unknown) => {
        for (const [at, tracked] of renewed.entries()) this.#callFailed(tracked, calls[at] as number, sentAt, error);
      },
    );
  }

  #heard(claim: Claim): void {
    this.#health.heard(this.clock.now(), this.driver.shardOf?.(claim));
  }

  #answered(tracked: Tracked, call: number, sentAt: number, answer: Answer): void {
    const now = this.clock.now();
    // before it is believed: what the machine has slept since it was sent is missing in the lease
    if (answer.state === "held") this.elapsed(now);
    this.#heard(tracked.claim);
    tracked.heard(answer, now);
    const stepped = this.#health.answered(answer, sentAt, now);
    this.#apply(tracked, { type: "answered", call, sentAt, answer }, now);
    if (call > tracked.steppedAt && believes(tracked.state, now)) tracked.confirmed();
    if (stepped) this.#storeStepped(now);
  }

  #callFailed(tracked: Tracked, call: number, sentAt: number, error: unknown): void {
    tracked.error = error;
    this.#health.failed(error, sentAt, this.driver.shardOf?.(tracked.claim));
    this.#apply(tracked, { type: "failed", call, fatal: isFatal(error), random: this.random() }, this.clock.now());
  }

  #tick(): void {
    const now = this.clock.now();
    this.elapsed(now);
    for (const item of this.#schedule.takeAllDue(now)) item.due(now, 0);
    if (this.#renewals.length > 0) this.#ride(now);
    this.#arm();
  }

  /** A renewal goes out anyway: those that are nearly due go with it. */
  #ride(now: number): void {
    for (const item of this.#schedule.takeAllDue(now + RIDE_MS)) {
      if (item.rides) item.due(now, RIDE_MS);
      else this.#schedule.set(item, item.dueAt);
    }
  }

  #slept(byMs: number): void {
    this.sleptMs += byMs;
    this.#events.emit("clockStep", { byMs, whose: "client" });
    const now = this.clock.now();
    for (const tracked of this.all()) this.#apply(tracked, { type: "slept", byMs }, now);
  }

  /** A step of the store's clock may have ended leases: everything is in jeopardy until it has been asked about. */
  #storeStepped(now: number): void {
    for (const tracked of this.all()) {
      if (tracked.state.at === "held") tracked.stepped();
      this.#apply(tracked, { type: "notified" }, now);
    }
  }

  #arm(): void {
    this.#timer.set(this.#schedule.next());
    this.#timer.keepAlive(this.#tracked.size > 0 || this.#releases.size > 0);
  }
}
