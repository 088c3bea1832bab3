/**
 * The event log: for `holdfast show` and `watch`, event streams and metrics. It is on the hot path, so recording an
 * event writes one slot of a ring and some counters; tags, wall-clock times and permissions are computed on reading.
 *
 * Rare events have a ring of their own, so that frequent grants and releases do not overwrite them. The rings are small
 * on purpose: the garbage collector copies each claim that a ring keeps alive, and with 8,192 of them that cost more
 * than all the rest.
 */

import type { EventKind, Observer } from "../../lock-table/events.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import { RequestError } from "../request-error.ts";
import type { RevokeRequest } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { TimeSlicer } from "../time-slicer.ts";
import type { RingEntry } from "./event-ring.ts";
import { EVENT_KINDS, EventRing } from "./event-ring.ts";
import { Histogram } from "./metrics.ts";
import type { EventBatch, EventFilter, RecordedEvent, SubscriptionListener } from "./subscription.ts";
import { Subscription } from "./subscription.ts";

export type { EventKind } from "../../lock-table/events.ts";
export type { EventBatch, EventFilter, RecordedEvent, SubscriptionListener } from "./subscription.ts";

export interface EventLogOptions {
  readonly clock: Clock;
  /** Events kept, and as many rare ones; a power of two. Default 2,048. */
  readonly capacity?: number;
}

/**
 * Maximum number of subscribers: each event is offered to all of them, in at most half of the server's time. One
 * account gets a quarter, so that the others find room.
 */
const MAX_SUBSCRIBERS = 1_000;
const MAX_SUBSCRIBERS_PER_ACCOUNT = 250;

/** What the log needs to know about a claim. */
export interface ClaimLifecycle extends RingEntry {
  /** Monotonic milliseconds of the clock. */
  readonly placedAt: number;
  readonly heldAt: number;
}

const GRANTED = EVENT_KINDS.indexOf("granted");
const RELEASED = EVENT_KINDS.indexOf("released");
const END_EVENTS: ReadonlySet<EventKind> = new Set(["withdrawn", "expired", "disconnected", "removed"]);
const LOW_VOLUME: ReadonlySet<EventKind> = new Set([
  "expired",
  "disconnected",
  "revoked",
  "maxHoldExceeded",
  "removed",
]);
/** If the wall clock deviates from the monotonic clock by more than this, it was set. */
const CLOCK_STEP_MS = 1_000;
/** How long events are collected before they are delivered to subscribers. */
const BATCH_DELAY_MS = 50;

export class EventLog implements Observer {
  /** Time from the claim's arrival to its grant. */
  readonly waitTimes: Histogram = new Histogram();
  /** Time from the grant to the end of the hold. */
  readonly holdTimes: Histogram = new Histogram();
  /** Claims held now. */
  heldCount = 0;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #counts = new Float64Array(EVENT_KINDS.length);
  readonly #common: EventRing;
  readonly #lowVolume: EventRing;
  readonly #capacity: number;
  readonly #subscribers = new Set<Subscription>();
  #lastSequence = 0;
  /** Difference between the wall clock and the monotonic clock. */
  #wallOffset: number;
  readonly #toWallTime = (time: number): number => this.#computeWallTime(time);
  #isScheduled = false;
  /** The time for subscribers: a thousand of them would keep a busy server from its locks. */
  readonly #slicer: TimeSlicer;
  /** Events since subscribers were last served. */
  #newEvents = 0;

  constructor({ clock, capacity = 2_048 }: EventLogOptions) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#deliver());
    this.#slicer = new TimeSlicer(clock);
    this.#wallOffset = clock.wall() - clock.now();
    this.#capacity = capacity;
    this.#common = new EventRing(capacity);
    this.#lowVolume = new EventRing(capacity);
  }

  /** Current number of subscribers. */
  get subscriberCount(): number {
    return this.#subscribers.size;
  }

  /** The sequence number of the newest event; 0: none. */
  get newestSequence(): number {
    return this.#lastSequence;
  }

  /** The number of events of this kind since the start. */
  count(kind: EventKind): number {
    return this.#counts[EVENT_KINDS.indexOf(kind)] as number;
  }

  onEvent(kind: EventKind, claim: ClaimLifecycle, now: number): void {
    // these two kinds are nearly all events
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

  /** Adds the operator and the reason to the newest revocation or removal. To be called right after it. */
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
      if (ring.claimAt(index).locks.some((spec) => spec.key === key))
        events.push(subscription.eventAt(ring, index) as RecordedEvent);
    }
    return events.reverse();
  }

  /** Events after sequence number `afterSequence`, oldest first, at most `max`. */
  since(afterSequence: number, max: number, filter: EventFilter): EventBatch {
    const subscription = new Subscription(this.#rings(), this.#toWallTime, filter, afterSequence);
    subscription.poll(max);
    return subscription.drain();
  }

  /**
   * Delivers events in batches, from sequence number `afterSequence` on (default: from now). The subscription ends when
   * its listener returns false.
   * @throws RequestError LIMIT if there are too many subscribers, in all or of one account
   */
  subscribe(
    filter: EventFilter,
    listener: SubscriptionListener,
    afterSequence: number = this.#lastSequence,
  ): Disposable {
    if (this.#subscribers.size >= MAX_SUBSCRIBERS) {
      throw new RequestError("LIMIT", `at most ${MAX_SUBSCRIBERS} event subscribers`);
    }
    const subscription = new Subscription(this.#rings(), this.#toWallTime, filter, afterSequence, listener);
    if (subscription.account !== "" && this.#countSubscriptions(subscription.account) >= MAX_SUBSCRIBERS_PER_ACCOUNT) {
      throw new RequestError("LIMIT", `at most ${MAX_SUBSCRIBERS_PER_ACCOUNT} event subscribers of one account`);
    }
    this.#subscribers.add(subscription);
    if (afterSequence < this.#lastSequence) this.#schedule(this.#clock.now() + BATCH_DELAY_MS);
    return { [Symbol.dispose]: () => void this.#subscribers.delete(subscription) };
  }

  #countSubscriptions(account: string): number {
    let count = 0;
    for (const { account: subscriberAccount } of this.#subscribers) if (subscriberAccount === account) count++;
    return count;
  }

  /** Ends all subscriptions. */
  close(): void {
    this.#subscribers.clear();
    this.#timer.stop();
  }

  /** Gives the same result for an event whenever it is read; only a step of the wall clock changes it. */
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
    // a claim that never got a token was never held
    if (claim.token === 0) return;
    this.heldCount--;
    this.holdTimes.add(now - claim.heldAt);
  }

  #rings(): readonly EventRing[] {
    return [this.#common, this.#lowVolume];
  }

  #onAppend(now: number): void {
    // before the ring wraps around, so that a busy server loses no event of a quiet key
    if (++this.#newEvents > this.#capacity / 4) this.#pollSubscribers(false);
    this.#schedule(now + BATCH_DELAY_MS);
  }

  #schedule(time: number): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#timer.set(time);
  }

  /**
   * Serves the subscribers for one slice of time. Those that are not reached come first the next time, and may have
   * missed events by then. False: there is more to read.
   */
  #pollSubscribers(delivers: boolean): boolean {
    if (!this.#slicer.hasTime()) return false;
    this.#newEvents = 0;
    return this.#slicer.run((endAt) => {
      let isDone = true;
      const subscriptions = [...this.#subscribers];
      for (const [index, subscription] of subscriptions.entries()) {
        if (this.#clock.now() >= endAt) {
          return isDone && subscriptions.slice(index).every((other) => other.hasSeen(this.#lastSequence));
        }
        // moves it to the end of the queue, unless it was removed meanwhile
        if (!this.#subscribers.delete(subscription)) continue;
        this.#subscribers.add(subscription);
        if (!subscription.poll()) isDone = false;
        if (delivers && !subscription.deliver()) this.#subscribers.delete(subscription);
      }
      return isDone;
    });
  }

  #deliver(): void {
    this.#isScheduled = false;
    // the others at once after the pause: half of the time is theirs
    if (!this.#pollSubscribers(true)) this.#schedule(this.#slicer.idleUntil);
  }
}

/**
 * Records a revocation right after it was done. The reason is free text; its control characters were removed when it
 * was decoded.
 */
export function recordRevocation(
  { key, token, now, reason }: RevokeRequest,
  { principal, label }: Session,
  log: Logger,
  eventLog: EventLog | null,
): void {
  eventLog?.annotateLast(principal.name, reason);
  const message = now ? "a lock was removed at once" : "a lock was revoked";
  log(message, undefined, { level: "warn", key, token, reason, account: principal.name, label });
}
