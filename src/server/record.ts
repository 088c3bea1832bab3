/**
 * What happened: for `holdfast show` and `watch`, for event streams and metrics. It is fed on the hot path, so noting an
 * event writes one slot of a ring and some counters; tags, times of day and rights are worked out when somebody reads.
 *
 * Rare events have a ring of their own: the bustle of grants and releases does not wash them away.
 */

import type { Clock, Timer } from "../clock.ts";
import type { Happening, Observer } from "../core/observer.ts";
import { Refusal } from "./backend.ts";
import { Histogram } from "./histogram.ts";
import type { Noted } from "./ring.ts";
import { Ring } from "./ring.ts";
import type { Batch, Filter, Listener, RecordedEvent } from "./telling.ts";
import { keysOf, Telling } from "./telling.ts";

export type { Happening } from "../core/observer.ts";
export type { Batch, Filter, Listener, RecordedEvent } from "./telling.ts";

export interface RecordOptions {
  readonly clock: Clock;
  /** Events kept; of rare ones a quarter of it more. Default 8,192. */
  readonly size?: number;
  /** Most subscribers at a time. Default 64. */
  readonly mostSubscribers?: number;
}

/** A claim as an event tells of it. */
export interface Lived extends Noted {
  /** On the clock's scale, milliseconds. */
  readonly placedAt: number;
  readonly heldAt: number;
}

const RARE: ReadonlySet<Happening> = new Set(["expired", "gone", "revoked", "outstayed", "removed"]);
/** How long events gather before subscribers are told. */
const GATHER_MS = 50;

export class Record implements Observer {
  /** How often each thing happened. */
  readonly counts: { -readonly [what in Happening]: number };
  /** From placing a claim to its grant. */
  readonly waits: Histogram = new Histogram();
  /** From the grant to the end of the hold. */
  readonly holds: Histogram = new Histogram();
  /** Claims held now. */
  held = 0;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #common: Ring;
  readonly #rare: Ring;
  readonly #mostSubscribers: number;
  readonly #subscribers = new Set<Telling>();
  #sequence = 0;
  #isArmed = false;
  /** Events since the subscribers were last looked after. */
  #fresh = 0;

  constructor({ clock, size = 8_192, mostSubscribers = 64 }: RecordOptions) {
    this.counts = {
      waiting: 0,
      granted: 0,
      reclaimed: 0,
      released: 0,
      left: 0,
      expired: 0,
      gone: 0,
      revoked: 0,
      outstayed: 0,
      removed: 0,
    };
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#tell());
    this.#common = new Ring(size);
    this.#rare = new Ring(Math.ceil(size / 4));
    this.#mostSubscribers = mostSubscribers;
  }

  /** How many listen now. */
  get subscribers(): number {
    return this.#subscribers.size;
  }

  /** The number of the newest event; 0: none. */
  get newest(): number {
    return this.#sequence;
  }

  happened(what: Happening, lived: Lived, now: number): void {
    this.counts[what]++;
    switch (what) {
      case "granted":
        this.held++;
        this.waits.add(now - lived.placedAt);
        break;
      case "reclaimed":
        this.held++;
        break;
      case "waiting":
      case "revoked":
      case "outstayed":
        break;
      default:
        if (lived.token === 0) break;
        this.held--;
        this.holds.add(now - lived.heldAt);
    }
    (RARE.has(what) ? this.#rare : this.#common).push(what, lived, ++this.#sequence, now);
    if (this.#subscribers.size > 0) this.#wake(now);
  }

  /** Says who had the last revocation or removal done, and why. To be called right after it. */
  explain(operator: string, reason: string): void {
    this.#rare.explain({ operator, reason });
  }

  /** The last events of a key, oldest first, at most `max`. */
  last(key: string, max: number, may: (key: string) => boolean): readonly RecordedEvent[] {
    if (!may(key)) return [];
    const found: RecordedEvent[] = [];
    const telling = new Telling(this.#rings(), this.#clock, { prefix: key, may }, Number.POSITIVE_INFINITY);
    for (const [ring, place] of telling.backwards()) {
      if (found.length >= max) break;
      if (keysOf(ring.claimAt(place)).includes(key)) found.push(telling.eventAt(ring, place) as RecordedEvent);
    }
    return found.reverse();
  }

  /** Events behind number `after`, oldest first, at most `max`. */
  since(after: number, max: number, filter: Filter): Batch {
    const telling = new Telling(this.#rings(), this.#clock, filter, after);
    telling.gather(max);
    return telling.take();
  }

  /**
   * Hands events over in batches as they come, from number `after` on (default: from now). The subscriber is cut when its
   * listener gives false.
   * @throws Refusal LIMIT when there are too many subscribers
   */
  subscribe(filter: Filter, listener: Listener, after: number = this.#sequence): Disposable {
    if (this.#subscribers.size >= this.#mostSubscribers) {
      throw new Refusal("LIMIT", `at most ${this.#mostSubscribers} may follow the events`);
    }
    const telling = new Telling(this.#rings(), this.#clock, filter, after, listener);
    this.#subscribers.add(telling);
    if (after < this.#sequence) this.#arm(this.#clock.now());
    return { [Symbol.dispose]: () => void this.#subscribers.delete(telling) };
  }

  /** Nobody is told anything any more. */
  close(): void {
    this.#subscribers.clear();
    this.#timer.stop();
  }

  #rings(): readonly Ring[] {
    return [this.#common, this.#rare];
  }

  #wake(now: number): void {
    // before the ring has gone round, so that a busy server loses nothing for those who follow one quiet key
    if (++this.#fresh > this.#common.size / 4) this.#gather();
    this.#arm(now);
  }

  #arm(now: number): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    this.#timer.set(now + GATHER_MS);
  }

  /** False: somebody has more to look at. */
  #gather(): boolean {
    this.#fresh = 0;
    let done = true;
    for (const telling of this.#subscribers) if (!telling.gather()) done = false;
    return done;
  }

  #tell(): void {
    this.#isArmed = false;
    const done = this.#gather();
    for (const telling of this.#subscribers) if (!telling.tell()) this.#subscribers.delete(telling);
    if (!done) this.#arm(this.#clock.now());
  }
}
