/** What one reader is told of the events: those it asked for and may see, in order, and no more than it can take. */

import type { EventKind } from "../../lock-table/events.ts";
import type { ServerEvent } from "../../protocol/admin-frames.ts";
import type { Claim } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { EventRing } from "./event-ring.ts";

/** One event as a reader is told of it. */
export type RecordedEvent = ServerEvent<EventKind>;

/** What a reader asked for and what it may see. */
export interface EventFilter {
  readonly prefix: string;
  readonly canSee: (key: string) => boolean;
  /** The account that asks; "", the default: nobody in particular. */
  readonly account?: string;
}

/** What a reader is handed. */
export interface EventBatch {
  readonly events: readonly RecordedEvent[];
  /** Events before these were overwritten before this reader could be handed them; some may have been for it. */
  readonly hasGap: boolean;
}

/** Gives false when it cannot take any more: it is then cut off. Must not throw. */
export type SubscriptionListener = (batch: EventBatch) => boolean;

/** Events that are kept for a reader until it is told. */
const MAX_BUFFERED_EVENTS = 500;

export class Subscription {
  readonly #rings: readonly EventRing[];
  readonly #toWallTime: (time: number) => number;
  readonly #filter: EventFilter;
  readonly #listener: SubscriptionListener | undefined;
  /** The number of the last event looked at. */
  #lastSequence: number;
  #events: RecordedEvent[] = [];
  #hasGap = false;

  /** toWallTime: the wall clock at a time of the record's clock. */
  constructor(
    rings: readonly EventRing[],
    toWallTime: (time: number) => number,
    filter: EventFilter,
    afterSequence: number,
    listener?: SubscriptionListener,
  ) {
    this.#rings = rings;
    this.#toWallTime = toWallTime;
    this.#filter = filter;
    this.#lastSequence = afterSequence;
    this.#listener = listener;
  }

  /**
   * Looks at the events that have come since, and keeps those that are for this reader, at most so many. False: there are
   * more to look at.
   */
  poll(maxEvents: number = MAX_BUFFERED_EVENTS): boolean {
    const indexes = this.#rings.map((ring) => this.#firstUnread(ring));
    for (;;) {
      const ringIndex = findOldestRing(this.#rings, indexes);
      if (ringIndex === -1) return true;
      if (this.#events.length >= maxEvents) return false;
      const ring = this.#rings[ringIndex] as EventRing;
      const index = (indexes[ringIndex] as number)++;
      this.#lastSequence = ring.sequenceAt(index);
      const event = this.#matches(ring.claimAt(index)) ? this.eventAt(ring, index) : null;
      if (event !== null) this.#events.push(event);
    }
  }

  /** The account that asks; "": nobody in particular. */
  get account(): string {
    return this.#filter.account ?? "";
  }

  /** What was kept; from now on nothing is. */
  drain(): EventBatch {
    const batch = { events: this.#events, hasGap: this.#hasGap };
    this.#events = [];
    this.#hasGap = false;
    return batch;
  }

  /** Tells the reader; false: it is to be cut. */
  deliver(): boolean {
    if (this.#events.length === 0 && !this.#hasGap) return true;
    return this.#listener?.(this.drain()) ?? true;
  }

  /** The event at a place; null: nothing of it may be seen. */
  eventAt(ring: EventRing, index: number): RecordedEvent | null {
    const claim = ring.claimAt(index);
    const keys = claimKeys(claim).filter(this.#filter.canSee);
    if (keys.length === 0) return null;
    const token = ring.tokenAt(index);
    return {
      seq: ring.sequenceAt(index),
      at: this.#toWallTime(ring.timeAt(index)),
      kind: ring.kindAt(index),
      keys,
      tag: publicTag(claim.id),
      label: claim.label,
      ...(token !== 0n && { token }),
      by: ring.accountAt(index),
      ...ring.auditDetailsAt(index),
    };
  }

  /** All places of all rings from the newest on. */
  *newestFirst(): Generator<readonly [EventRing, number]> {
    const indexes = this.#rings.map(({ next }) => next - 1);
    for (;;) {
      let newest = -1;
      for (const [ringIndex, ring] of this.#rings.entries()) {
        const index = indexes[ringIndex] as number;
        if (index < ring.first) continue;
        const isNewer =
          newest === -1 ||
          ring.sequenceAt(index) > (this.#rings[newest] as EventRing).sequenceAt(indexes[newest] as number);
        if (isNewer) newest = ringIndex;
      }
      if (newest === -1) return;
      yield [this.#rings[newest] as EventRing, (indexes[newest] as number)--];
    }
  }

  #matches(claim: Claim): boolean {
    const { prefix, canSee } = this.#filter;
    return claim.holds.some(({ key }) => key.startsWith(prefix) && canSee(key));
  }

  /** The first place whose event has not been looked at. */
  #firstUnread(ring: EventRing): number {
    if (ring.lastDropped > this.#lastSequence) this.#hasGap = true;
    let index = ring.next;
    while (index > ring.first && ring.sequenceAt(index - 1) > this.#lastSequence) index--;
    return index;
  }
}

/** The ring whose next place has the lowest number; -1: none has any. */
function findOldestRing(rings: readonly EventRing[], indexes: readonly number[]): number {
  let oldestRing = -1;
  for (const [ringIndex, ring] of rings.entries()) {
    const index = indexes[ringIndex] as number;
    if (index >= ring.next) continue;
    const isOlder =
      oldestRing === -1 ||
      ring.sequenceAt(index) < (rings[oldestRing] as EventRing).sequenceAt(indexes[oldestRing] as number);
    if (isOlder) oldestRing = ringIndex;
  }
  return oldestRing;
}

function claimKeys({ holds }: Claim): string[] {
  return holds.map(({ key }) => key);
}
