/**
 * What happened: for `holdfast show` and `watch`, for event streams and metrics. It is fed on the hot path, so noting an
 * event writes one slot of a ring and some counters; tags, times of day and rights are worked out when somebody reads.
 *
 * Rare events have a ring of their own: the bustle of grants and releases does not wash them away. The rings are small on
 * purpose: a claim that is kept is copied by the collector of garbage, and with 8,192 of them that cost more than the rest.
 */

import type { EventKind, Observer } from "../../lock-table/events.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { RequestError } from "../backend.ts";
import type { RingEntry } from "./event-ring.ts";
import { EVENT_KINDS, EventRing } from "./event-ring.ts";
import { Histogram } from "./histogram.ts";
import type { EventBatch, EventFilter, RecordedEvent, SubscriptionListener } from "./subscription.ts";
import { Subscription } from "./subscription.ts";

export type { EventKind } from "../../lock-table/events.ts";
export type { EventBatch, EventFilter, RecordedEvent, SubscriptionListener } from "./subscription.ts";

export interface EventLogOptions {
  readonly clock: Clock;
  /** Events kept, and as many rare ones; a power of two. Default 2,048. */
  readonly capacity?: number;
  /** Most subscribers at a time. Default 64. */
  readonly maxSubscribers?: number;
  /** Most of them of one account. Default: all. */
  readonly maxSubscribersPerAccount?: number;
}

/** A claim as an event tells of it. */
export interface ClaimLifecycle extends RingEntry {
  /** On the clock's scale, milliseconds. */
  readonly placedAt: number;
  readonly heldAt: number;
}

const GRANTED = EVENT_KINDS.indexOf("granted");
const RELEASED = EVENT_KINDS.indexOf("released");
const END_EVENTS: ReadonlySet<EventKind> = new Set(["left", "expired", "gone", "removed"]);
const LOW_VOLUME: ReadonlySet<EventKind> = new Set(["expired", "gone", "revoked", "outstayed", "removed"]);
/** A wall clock that has moved further than this against the monotonic one was set. */
const CLOCK_STEP_MS = 1_000;
/** How long events gather before subscribers are told. */
const BATCH_DELAY_MS = 50;
/** How long subscribers are looked after at a time: a thousand of them would keep a busy server from its locks. */
const SLICE_MS = 5;

export class EventLog implements Observer {
  /** From placing a claim to its grant. */
  readonly waitTimes: Histogram = new Histogram();
  /** From the grant to the end of the hold. */
  readonly holdTimes: Histogram = new Histogram();
  /** Claims held now. */
  heldCount = 0;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #counts = new Float64Array(EVENT_KINDS.length);
  readonly #common: EventRing;
  readonly #lowVolume: EventRing;
  readonly #capacity: number;
  readonly #maxSubscribers: number;
  readonly #maxSubscribersPerAccount: number;
  readonly #subscribers = new Set<Subscription>();
  #lastSequence = 0;
  /** From the clock's scale to the wall clock's. */
  #wallOffset: number;
  readonly #toWallTime = (time: number): number => this.#computeWallTime(time);
  #isScheduled = false;
  /** Until then nobody is looked after again. */
  #idleUntil = 0;
  /** Events since the subscribers were last looked after. */
  #newEvents = 0;

  constructor({
    clock,
    capacity = 2_048,
    maxSubscribers = 64,
    maxSubscribersPerAccount = maxSubscribers,
  }: EventLogOptions) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#deliver());
    this.#wallOffset = clock.wall() - clock.now();
    this.#capacity = capacity;
    this.#common = new EventRing(capacity);
    this.#lowVolume = new EventRing(capacity);
    this.#maxSubscribers = maxSubscribers;
    this.#maxSubscribersPerAccount = maxSubscribersPerAccount;
  }

  /** How many listen now. */
  get subscriberCount(): number {
    return this.#subscribers.size;
  }

  /** The number of the newest event; 0: none. */
  get newestSequence(): number {
    return this.#lastSequence;
  }

  /** How often that happened. */
  count(kind: EventKind): number {
    return this.#counts[EVENT_KINDS.indexOf(kind)] as number;
  }

  onEvent(kind: EventKind, claim: ClaimLifecycle, now: number): void {
    // these two are nearly everything there is
    if (kind === "granted") {
      this.heldCount++;
      this.waitTimes.add(now - claim.placedAt);
      this.#append(this.#common, GRANTED, claim, now);
    } else if (kind === "released") {
      this.#recordEnd(claim, now);
      this.#append(this.#common, RELEASED, claim, now);
    } else {
      if (kind === "reclaimed") this.heldCount++;
      else if (END_EVENTS.has(kind)) this.#recordEnd(claim, now);
      this.#append(LOW_VOLUME.has(kind) ? this.#lowVolume : this.#common, EVENT_KINDS.indexOf(kind), claim, now);
    }
  }

  /** Says who had the last revocation or removal done, and why. To be called right after it. */
  annotateLast(operator: string, reason: string): void {
    this.#lowVolume.annotateLast({ operator, reason });
  }

  /** The last events of a key, oldest first, at most `max`. */
  history(key: string, max: number, canSee: (key: string) => boolean): readonly RecordedEvent[] {
    if (!canSee(key)) return [];
    const events: RecordedEvent[] = [];
    const subscription = new Subscription(
      this.#rings(),
      this.#toWallTime,
      { prefix: key, canSee },
      Number.POSITIVE_INFINITY,
    );
    for (const [ring, index] of subscription.newestFirst()) {
      if (events.length >= max) break;
      if (ring.claimAt(index).holds.some((hold) => hold.key === key))
        events.push(subscription.eventAt(ring, index) as RecordedEvent);
    }
    return events.reverse();
  }

  /** Events behind number `afterSequence`, oldest first, at most `max`. */
  since(afterSequence: number, max: number, filter: EventFilter): EventBatch {
    const subscription = new Subscription(this.#rings(), this.#toWallTime, filter, afterSequence);
    subscription.poll(max);
    return subscription.drain();
  }

  /**
   * Hands events over in batches as they come, from number `afterSequence` on (default: from now). The subscriber is cut when its
   * listener gives false.
   * @throws RequestError LIMIT when there are too many subscribers, in all or of one account
   */
  subscribe(
    filter: EventFilter,
    listener: SubscriptionListener,
    afterSequence: number = this.#lastSequence,
  ): Disposable {
    if (this.#subscribers.size >= this.#maxSubscribers) {
      throw new RequestError("LIMIT", `at most ${this.#maxSubscribers} may follow the events`);
    }
    const subscription = new Subscription(this.#rings(), this.#toWallTime, filter, afterSequence, listener);
    if (
      subscription.account !== "" &&
      this.#countSubscriptions(subscription.account) >= this.#maxSubscribersPerAccount
    ) {
      throw new RequestError("LIMIT", `at most ${this.#maxSubscribersPerAccount} of one account may follow the events`);
    }
    this.#subscribers.add(subscription);
    if (afterSequence < this.#lastSequence) this.#schedule(this.#clock.now());
    return { [Symbol.dispose]: () => void this.#subscribers.delete(subscription) };
  }

  #countSubscriptions(account: string): number {
    let count = 0;
    for (const { account: subscriberAccount } of this.#subscribers) if (subscriberAccount === account) count++;
    return count;
  }

  /** Nobody is told anything any more. */
  close(): void {
    this.#subscribers.clear();
    this.#timer.stop();
  }

  /** The same for an event whenever it is read; only a step of the wall clock changes it. */
  #computeWallTime(time: number): number {
    const offset = this.#clock.wall() - this.#clock.now();
    if (Math.abs(offset - this.#wallOffset) > CLOCK_STEP_MS) this.#wallOffset = offset;
    return Math.round(time + this.#wallOffset);
  }

  #append(ring: EventRing, kind: number, claim: ClaimLifecycle, now: number): void {
    this.#counts[kind] = (this.#counts[kind] as number) + 1;
    ring.push(kind, claim, ++this.#lastSequence, now);
    if (this.#subscribers.size > 0) this.#onAppend(now);
  }

  #recordEnd(claim: ClaimLifecycle, now: number): void {
    // a waiting place was never held
    if (claim.token === 0) return;
    this.heldCount--;
    this.holdTimes.add(now - claim.heldAt);
  }

  #rings(): readonly EventRing[] {
    return [this.#common, this.#lowVolume];
  }

  #onAppend(now: number): void {
    // before the ring has gone round, so that a busy server loses nothing for those who follow one quiet key
    if (++this.#newEvents > this.#capacity / 4) this.#pollSubscribers(false);
    this.#schedule(now);
  }

  #schedule(now: number): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#timer.set(now + BATCH_DELAY_MS);
  }

  /**
   * Looks after the subscribers, for a slice of time; then locks are served for as long. Who is not reached comes first
   * the next time, and may have missed something then. False: somebody has more to look at.
   */
  #pollSubscribers(delivers: boolean): boolean {
    const startedAt = this.#clock.now();
    if (startedAt < this.#idleUntil) return false;
    this.#newEvents = 0;
    let isDone = true;
    let now = startedAt;
    for (const subscription of [...this.#subscribers]) {
      if (now - startedAt >= SLICE_MS) {
        isDone = false;
        break;
      }
      // to the end of the line, unless it was cut meanwhile
      if (!this.#subscribers.delete(subscription)) continue;
      this.#subscribers.add(subscription);
      if (!subscription.poll()) isDone = false;
      if (delivers && !subscription.deliver()) this.#subscribers.delete(subscription);
      now = this.#clock.now();
    }
    this.#idleUntil = now + (now - startedAt);
    return isDone;
  }

  #deliver(): void {
    this.#isScheduled = false;
    if (!this.#pollSubscribers(true)) this.#schedule(this.#clock.now());
  }
}
