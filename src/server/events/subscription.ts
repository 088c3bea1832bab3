/** One subscription to events: those that match its filter and are visible to it, in order, within its buffer. */

import type { EventKind } from "../../lock-table/events.ts";
import type { ServerEvent } from "../../protocol/admin-frames.ts";
import type { Claim } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { EventRing } from "./event-ring.ts";

/** One event as it is delivered. */
export type RecordedEvent = ServerEvent<EventKind>;

/** What a subscriber asked for and may see. */
export interface EventFilter {
  readonly prefix: string;
  readonly canSee: (key: string) => boolean;
  /** The subscriber's account; "", the default: none. */
  readonly account?: string;
}

/** A batch of events. */
export interface EventBatch {
  readonly events: readonly RecordedEvent[];
  /** Earlier events were overwritten before this subscription read them; some may have matched its filter. */
  readonly hasGap: boolean;
}

/** Returns false when it can take no more: the subscription then ends. Must not throw. */
export type SubscriptionListener = (batch: EventBatch) => boolean;

/** Events that are buffered for a subscriber until the next delivery. */
const MAX_BUFFERED_EVENTS = 500;

export class Subscription {
  readonly #rings: readonly EventRing[];
  readonly #toWallTime: (time: number) => number;
  readonly #filter: EventFilter;
  readonly #listener: SubscriptionListener | undefined;
  /** The sequence number of the last event read. */
  #lastSequence: number;
  #events: RecordedEvent[] = [];
  #hasGap = false;

  /** toWallTime: converts a time of the event log's clock to the wall clock. */
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

  /** Reads new events and buffers those that match, at most `maxEvents`. False: there are more to read. */
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

  /** Whether it has read the event with this number, and delivered what it has read. */
  hasSeen(sequence: number): boolean {
    return this.#lastSequence >= sequence && this.#events.length === 0;
  }

  /** The subscriber's account; "" for none. */
  get account(): string {
    return this.#filter.account ?? "";
  }

  /** Returns the buffered events and empties the buffer. */
  drain(): EventBatch {
    const batch = { events: this.#events, hasGap: this.#hasGap };
    this.#events = [];
    this.#hasGap = false;
    return batch;
  }

  /** Delivers the buffer; false: the subscription must end. */
  deliver(): boolean {
    if (this.#events.length === 0 && !this.#hasGap) return true;
    return this.#listener?.(this.drain()) ?? true;
  }

  /** The event at an index; null if the subscriber may see none of its keys. */
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
      account: ring.accountAt(index),
      ...ring.auditDetailsAt(index),
    };
  }

  /** All events of all rings, from the newest on. */
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
    return claim.locks.some(({ key }) => key.startsWith(prefix) && canSee(key));
  }

  /** The index of the first event that was not read yet. */
  #firstUnread(ring: EventRing): number {
    if (ring.lastDropped > this.#lastSequence) this.#hasGap = true;
    let index = ring.next;
    while (index > ring.first && ring.sequenceAt(index - 1) > this.#lastSequence) index--;
    return index;
  }
}

/** The ring whose next event has the lowest sequence number; -1: none has one. */
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

function claimKeys({ locks }: Claim): string[] {
  return locks.map(({ key }) => key);
}
