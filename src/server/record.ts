/**
 * What happened: for `holdfast show` and `watch`, for event streams and metrics. It is fed on the hot path, so noting an
 * event writes one slot of a ring and some counters; tags, times of day and rights are worked out when somebody reads.
 *
 * Rare events have a ring of their own: the bustle of grants and releases does not wash them away. The rings are small on
 * purpose: a claim that is kept is copied by the collector of garbage, and with 8,192 of them that cost more than the rest.
 */

import type { Clock, Timer } from "../clock.ts";
import type { Happening, Observer } from "../core/observer.ts";
import { Refusal } from "./backend.ts";
import { Histogram } from "./histogram.ts";
import type { Noted } from "./ring.ts";
import { KINDS, Ring } from "./ring.ts";
import type { Batch, Filter, Listener, RecordedEvent } from "./telling.ts";
import { Telling } from "./telling.ts";

export type { Happening } from "../core/observer.ts";
export type { Batch, Filter, Listener, RecordedEvent } from "./telling.ts";

export interface RecordOptions {
  readonly clock: Clock;
  /** Events kept, and as many rare ones; a power of two. Default 2,048. */
  readonly size?: number;
  /** Most subscribers at a time. Default 64. */
  readonly mostSubscribers?: number;
  /** Most of them of one account. Default: all. */
  readonly mostOfAccount?: number;
}

/** A claim as an event tells of it. */
export interface Lived extends Noted {
  /** On the clock's scale, milliseconds. */
  readonly placedAt: number;
  readonly heldAt: number;
}

const GRANTED = KINDS.indexOf("granted");
const RELEASED = KINDS.indexOf("released");
const ENDINGS: ReadonlySet<Happening> = new Set(["left", "expired", "gone", "removed"]);
const RARE: ReadonlySet<Happening> = new Set(["expired", "gone", "revoked", "outstayed", "removed"]);
/** A wall clock that has moved further than this against the monotonic one was set. */
const STEP_MS = 1_000;
/** How long events gather before subscribers are told. */
const GATHER_MS = 50;
/** How long subscribers are looked after at a time: a thousand of them would keep a busy server from its locks. */
const SLICE_MS = 5;

export class Record implements Observer {
  /** From placing a claim to its grant. */
  readonly waits: Histogram = new Histogram();
  /** From the grant to the end of the hold. */
  readonly holds: Histogram = new Histogram();
  /** Claims held now. */
  held = 0;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #counts = new Float64Array(KINDS.length);
  readonly #common: Ring;
  readonly #rare: Ring;
  readonly #size: number;
  readonly #mostSubscribers: number;
  readonly #mostOfAccount: number;
  readonly #subscribers = new Set<Telling>();
  #sequence = 0;
  /** From the clock's scale to the wall clock's. */
  #wallAhead: number;
  readonly #wallAt = (time: number): number => this.#wallOf(time);
  #isArmed = false;
  /** Until then nobody is looked after again. */
  #restUntil = 0;
  /** Events since the subscribers were last looked after. */
  #fresh = 0;

  constructor({ clock, size = 2_048, mostSubscribers = 64, mostOfAccount = mostSubscribers }: RecordOptions) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#tell());
    this.#wallAhead = clock.wall() - clock.now();
    this.#size = size;
    this.#common = new Ring(size);
    this.#rare = new Ring(size);
    this.#mostSubscribers = mostSubscribers;
    this.#mostOfAccount = mostOfAccount;
  }

  /** How many listen now. */
  get subscribers(): number {
    return this.#subscribers.size;
  }

  /** The number of the newest event; 0: none. */
  get newest(): number {
    return this.#sequence;
  }

  /** How often that happened. */
  count(what: Happening): number {
    return this.#counts[KINDS.indexOf(what)] as number;
  }

  happened(what: Happening, lived: Lived, now: number): void {
    // these two are nearly everything there is
    if (what === "granted") {
      this.held++;
      this.waits.add(now - lived.placedAt);
      this.#note(this.#common, GRANTED, lived, now);
    } else if (what === "released") {
      this.#ended(lived, now);
      this.#note(this.#common, RELEASED, lived, now);
    } else {
      if (what === "reclaimed") this.held++;
      else if (ENDINGS.has(what)) this.#ended(lived, now);
      this.#note(RARE.has(what) ? this.#rare : this.#common, KINDS.indexOf(what), lived, now);
    }
  }

  /** Says who had the last revocation or removal done, and why. To be called right after it. */
  explain(operator: string, reason: string): void {
    this.#rare.explain({ operator, reason });
  }

  /** The last events of a key, oldest first, at most `max`. */
  last(key: string, max: number, may: (key: string) => boolean): readonly RecordedEvent[] {
    if (!may(key)) return [];
    const found: RecordedEvent[] = [];
    const telling = new Telling(this.#rings(), this.#wallAt, { prefix: key, may }, Number.POSITIVE_INFINITY);
    for (const [ring, place] of telling.backwards()) {
      if (found.length >= max) break;
      if (ring.claimAt(place).holds.some((hold) => hold.key === key))
        found.push(telling.eventAt(ring, place) as RecordedEvent);
    }
    return found.reverse();
  }

  /** Events behind number `after`, oldest first, at most `max`. */
  since(after: number, max: number, filter: Filter): Batch {
    const telling = new Telling(this.#rings(), this.#wallAt, filter, after);
    telling.gather(max);
    return telling.take();
  }

  /**
   * Hands events over in batches as they come, from number `after` on (default: from now). The subscriber is cut when its
   * listener gives false.
   * @throws Refusal LIMIT when there are too many subscribers, in all or of one account
   */
  subscribe(filter: Filter, listener: Listener, after: number = this.#sequence): Disposable {
    if (this.#subscribers.size >= this.#mostSubscribers) {
      throw new Refusal("LIMIT", `at most ${this.#mostSubscribers} may follow the events`);
    }
    const telling = new Telling(this.#rings(), this.#wallAt, filter, after, listener);
    if (telling.by !== "" && this.#followedBy(telling.by) >= this.#mostOfAccount) {
      throw new Refusal("LIMIT", `at most ${this.#mostOfAccount} of one account may follow the events`);
    }
    this.#subscribers.add(telling);
    if (after < this.#sequence) this.#arm(this.#clock.now());
    return { [Symbol.dispose]: () => void this.#subscribers.delete(telling) };
  }

  #followedBy(account: string): number {
    let count = 0;
    for (const { by } of this.#subscribers) if (by === account) count++;
    return count;
  }

  /** Nobody is told anything any more. */
  close(): void {
    this.#subscribers.clear();
    this.#timer.stop();
  }

  /** The same for an event whenever it is read; only a step of the wall clock changes it. */
  #wallOf(time: number): number {
    const ahead = this.#clock.wall() - this.#clock.now();
    if (Math.abs(ahead - this.#wallAhead) > STEP_MS) this.#wallAhead = ahead;
    return Math.round(time + this.#wallAhead);
  }

  #note(ring: Ring, kind: number, lived: Lived, now: number): void {
    this.#counts[kind] = (this.#counts[kind] as number) + 1;
    ring.push(kind, lived, ++this.#sequence, now);
    if (this.#subscribers.size > 0) this.#wake(now);
  }

  #ended(lived: Lived, now: number): void {
    // a waiting place was never held
    if (lived.token === 0) return;
    this.held--;
    this.holds.add(now - lived.heldAt);
  }

  #rings(): readonly Ring[] {
    return [this.#common, this.#rare];
  }

  #wake(now: number): void {
    // before the ring has gone round, so that a busy server loses nothing for those who follow one quiet key
    if (++this.#fresh > this.#size / 4) this.#gather(false);
    this.#arm(now);
  }

  #arm(now: number): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    this.#timer.set(now + GATHER_MS);
  }

  /**
   * Looks after the subscribers, for a slice of time; then locks are served for as long. Who is not reached comes first
   * the next time, and may have missed something then. False: somebody has more to look at.
   */
  #gather(tells: boolean): boolean {
    const began = this.#clock.now();
    if (began < this.#restUntil) return false;
    this.#fresh = 0;
    let done = true;
    let now = began;
    for (const telling of [...this.#subscribers]) {
      if (now - began >= SLICE_MS) {
        done = false;
        break;
      }
      // to the end of the line, unless it was cut meanwhile
      if (!this.#subscribers.delete(telling)) continue;
      this.#subscribers.add(telling);
      if (!telling.gather()) done = false;
      if (tells && !telling.tell()) this.#subscribers.delete(telling);
      now = this.#clock.now();
    }
    this.#restUntil = now + (now - began);
    return done;
  }

  #tell(): void {
    this.#isArmed = false;
    if (!this.#gather(true)) this.#arm(this.#clock.now());
  }
}
