/** What one reader is told of the events: those it asked for and may see, in order, and no more than it can take. */

import type { Happening } from "../core/observer.ts";
import { tagOf } from "../ids.ts";
import type { ToldEvent } from "../protocol/tools.ts";
import type { Claim } from "../spi/driver.ts";
import type { Ring } from "./ring.ts";

/** One event as a reader is told of it. */
export type RecordedEvent = ToldEvent<Happening>;

/** What a reader asked for and what it may see. */
export interface Filter {
  readonly prefix: string;
  readonly may: (key: string) => boolean;
  /** The account that asks; "", the default: nobody in particular. */
  readonly by?: string;
}

/** What a reader is handed. */
export interface Batch {
  readonly events: readonly RecordedEvent[];
  /** Events before these were overwritten before this reader could be handed them; some may have been for it. */
  readonly gap: boolean;
}

/** Gives false when it cannot take any more: it is then cut off. Must not throw. */
export type Listener = (batch: Batch) => boolean;

/** Events that are kept for a reader until it is told. */
const MOST_GATHERED = 500;

export class Telling {
  readonly #rings: readonly Ring[];
  readonly #wallAt: (time: number) => number;
  readonly #filter: Filter;
  readonly #listener: Listener | undefined;
  /** The number of the last event looked at. */
  #after: number;
  #events: RecordedEvent[] = [];
  #gap = false;

  /** wallAt: the wall clock at a time of the record's clock. */
  constructor(
    rings: readonly Ring[],
    wallAt: (time: number) => number,
    filter: Filter,
    after: number,
    listener?: Listener,
  ) {
    this.#rings = rings;
    this.#wallAt = wallAt;
    this.#filter = filter;
    this.#after = after;
    this.#listener = listener;
  }

  /**
   * Looks at the events that have come since, and keeps those that are for this reader, at most so many. False: there are
   * more to look at.
   */
  gather(most: number = MOST_GATHERED): boolean {
    const places = this.#rings.map((ring) => this.#placeBehind(ring));
    for (;;) {
      const at = oldest(this.#rings, places);
      if (at === -1) return true;
      if (this.#events.length >= most) return false;
      const ring = this.#rings[at] as Ring;
      const place = (places[at] as number)++;
      this.#after = ring.sequenceAt(place);
      const event = this.#isFor(ring.claimAt(place)) ? this.eventAt(ring, place) : null;
      if (event !== null) this.#events.push(event);
    }
  }

  /** The account that asks; "": nobody in particular. */
  get by(): string {
    return this.#filter.by ?? "";
  }

  /** What was kept; from now on nothing is. */
  take(): Batch {
    const batch = { events: this.#events, gap: this.#gap };
    this.#events = [];
    this.#gap = false;
    return batch;
  }

  /** Tells the reader; false: it is to be cut. */
  tell(): boolean {
    if (this.#events.length === 0 && !this.#gap) return true;
    return this.#listener?.(this.take()) ?? true;
  }

  /** The event at a place; null: nothing of it may be seen. */
  eventAt(ring: Ring, place: number): RecordedEvent | null {
    const claim = ring.claimAt(place);
    const keys = keysOf(claim).filter(this.#filter.may);
    if (keys.length === 0) return null;
    const token = ring.tokenAt(place);
    return {
      seq: ring.sequenceAt(place),
      at: this.#wallAt(ring.timeAt(place)),
      kind: ring.kindAt(place),
      keys,
      tag: tagOf(claim.id),
      label: claim.label,
      ...(token !== 0n && { token }),
      by: ring.accountAt(place),
      ...ring.becauseAt(place),
    };
  }

  /** All places of all rings from the newest on. */
  *backwards(): Generator<readonly [Ring, number]> {
    const places = this.#rings.map(({ next }) => next - 1);
    for (;;) {
      let newest = -1;
      for (const [at, ring] of this.#rings.entries()) {
        const place = places[at] as number;
        if (place < ring.first) continue;
        const isNewer =
          newest === -1 || ring.sequenceAt(place) > (this.#rings[newest] as Ring).sequenceAt(places[newest] as number);
        if (isNewer) newest = at;
      }
      if (newest === -1) return;
      yield [this.#rings[newest] as Ring, (places[newest] as number)--];
    }
  }

  #isFor(claim: Claim): boolean {
    const { prefix, may } = this.#filter;
    return claim.holds.some(({ key }) => key.startsWith(prefix) && may(key));
  }

  /** The first place whose event has not been looked at. */
  #placeBehind(ring: Ring): number {
    if (ring.lost > this.#after) this.#gap = true;
    let place = ring.next;
    while (place > ring.first && ring.sequenceAt(place - 1) > this.#after) place--;
    return place;
  }
}

/** The ring whose next place has the lowest number; -1: none has any. */
function oldest(rings: readonly Ring[], places: readonly number[]): number {
  let found = -1;
  for (const [at, ring] of rings.entries()) {
    const place = places[at] as number;
    if (place >= ring.next) continue;
    const isOlder = found === -1 || ring.sequenceAt(place) < (rings[found] as Ring).sequenceAt(places[found] as number);
    if (isOlder) found = at;
  }
  return found;
}

function keysOf({ holds }: Claim): string[] {
  return holds.map(({ key }) => key);
}
