/**
 * The last events of a store, for the pages of the dashboard, and what they say about rates and times. Events are told by
 * the lock server or by the gateway's own event log. A claim of which nothing was told is watched by its traces in
 * consecutive lists.
 *
 * Invariants: the records are plain: they keep no claim alive. An event that was told is not recorded a second time from
 * a list: what a list shows is recorded with the next one, when what it shows was told at the latest. No event is recorded
 * from lists that are not complete: a claim that is missing there may still exist.
 */

import type { ServerEvent } from "../../protocol/admin-frames.ts";
import type { ClaimView } from "../../spi/driver.ts";
import type { Listing } from "./store-sampler.ts";
import type { DashboardEvent, TimeHistogram } from "./view-types.ts";

/** Events that are kept. */
const MAX_EVENTS = 10_000;
/** Claims whose start is remembered, to measure times. */
const MAX_CLAIMS = 100_000;
const BOUNDS_MS: readonly number[] = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000];
/** Kinds of events that end a hold. */
const ENDS: ReadonlySet<string> = new Set(["released", "expired", "disconnected", "removed", "ended"]);
const GRANTS: ReadonlySet<string> = new Set(["granted", "reclaimed"]);

type NewEvent = Omit<DashboardEvent, "sequence">;

interface ClaimTimes {
  readonly isHeld: boolean;
  readonly since: number;
}

export class EventHistory {
  /** Since when no event was missed. */
  since: number;
  /** Since the start of this program, and from both sources. */
  grantCount = 0;
  endCount = 0;
  readonly #wall: () => number;
  readonly #events: DashboardEvent[] = [];
  readonly #listeners = new Set<(events: readonly DashboardEvent[]) => void>();
  /** By tag, of claims that were told about. */
  readonly #times = new Map<string, ClaimTimes>();
  readonly #waits = new Histogram();
  readonly #holds = new Histogram();
  #sequence = 0;
  #previous: Listing | null = null;
  /** What the last list showed. */
  #sampled: NewEvent[] = [];
  /** The claims that were told about since the last list, and since the one before. */
  #told = new Set<string>();
  #toldBefore = new Set<string>();

  /** @param wall the wall clock, in milliseconds since 1970 */
  constructor(wall: () => number) {
    this.#wall = wall;
    this.since = wall();
  }

  /** How long claims waited; null: not known of any. */
  get waits(): TimeHistogram | null {
    return this.#waits.toJson();
  }

  get holds(): TimeHistogram | null {
    return this.#holds.toJson();
  }

  /** The events after this one, oldest first. */
  after(sequence: number): readonly DashboardEvent[] {
    const first = this.#events[0];
    return first === undefined ? [] : this.#events.slice(Math.max(0, sequence + 1 - first.sequence));
  }

  subscribe(listener: (events: readonly DashboardEvent[]) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** Records what the source of events told. hasGap: events before these were missed. */
  addTold(events: readonly ServerEvent[], hasGap: boolean): void {
    if (hasGap) this.markGap();
    const records = events.map(toRecord);
    for (const record of records) {
      this.#measure(record);
      this.#told.add(record.tag);
    }
    this.#append(records);
  }

  /** Records what was done through the pages: what follows from it is told by others, or seen in lists. */
  addAction(event: NewEvent): void {
    this.#append([event]);
  }

  /** Events were missed until now. */
  markGap(): void {
    this.since = this.#wall();
    this.#times.clear();
  }

  /** Records how the previous list of all claims differed from the one before it; null: this list failed. */
  addListing(listing: Listing | null): void {
    const isTold = (tag: string): boolean => this.#times.has(tag) || this.#told.has(tag) || this.#toldBefore.has(tag);
    this.#append(this.#sampled.filter(({ tag }) => !isTold(tag)));
    this.#sampled = this.#compare(this.#previous, listing);
    this.#previous = listing;
    this.#toldBefore = this.#told;
    this.#told = new Set();
  }

  #compare(previous: Listing | null, listing: Listing | null): NewEvent[] {
    if (previous === null || listing === null || !previous.isComplete || !listing.isComplete) return [];
    const at = this.#wall();
    const before = new Map(previous.views.map((view) => [view.tag, view]));
    const begun: NewEvent[] = [];
    for (const view of listing.views) {
      const earlier = before.get(view.tag);
      before.delete(view.tag);
      if (isHeld(view) && (earlier === undefined || !isHeld(earlier))) begun.push(toSample(view, "granted", at));
      else if (earlier === undefined) begun.push(toSample(view, "waiting", at));
    }
    // a waiter may have been granted the lock, and have released it, between the lists
    const over = Array.from(before.values(), (view) => toSample(view, isHeld(view) ? "ended" : "left", at));
    return [...over, ...begun];
  }

  #append(records: readonly NewEvent[]): void {
    if (records.length === 0) return;
    const events = records.map((record) => {
      this.#sequence++;
      if (GRANTS.has(record.kind)) this.grantCount++;
      else if (ENDS.has(record.kind)) this.endCount++;
      return { ...record, sequence: this.#sequence };
    });
    this.#events.push(...events);
    if (this.#events.length > MAX_EVENTS) {
      const dropped = this.#events.splice(0, this.#events.length - MAX_EVENTS);
      this.since = Math.max(this.since, (dropped.at(-1) as DashboardEvent).at);
    }
    for (const listener of [...this.#listeners]) listener(events);
  }

  #measure({ kind, tag, at }: NewEvent): void {
    const times = this.#times.get(tag);
    if (kind === "waiting") this.#remember(tag, { isHeld: false, since: at });
    else if (GRANTS.has(kind)) {
      // one that never waited was granted at once
      if (kind === "granted") this.#waits.add(times === undefined ? 0 : at - times.since);
      this.#remember(tag, { isHeld: true, since: at });
    } else if (kind === "withdrawn" || ENDS.has(kind)) {
      if (times?.isHeld === true) this.#holds.add(at - times.since);
      this.#times.delete(tag);
    }
  }

  #remember(tag: string, times: ClaimTimes): void {
    this.#times.set(tag, times);
    if (this.#times.size <= MAX_CLAIMS) return;
    const [oldest] = this.#times.keys();
    this.#times.delete(oldest as string);
  }
}

function toRecord({ at, kind, keys, tag, label, token, account, operator, reason }: ServerEvent): NewEvent {
  return {
    ...{ at, kind, keys, tag, label, account, source: "told" },
    token: token === undefined ? null : String(token),
    ...(operator !== undefined && { operator }),
    ...(reason !== undefined && { reason }),
  };
}

function toSample({ locks, tag, label, answer }: ClaimView, kind: string, at: number): NewEvent {
  const token = answer.state === "held" && answer.token > 0n ? String(answer.token) : null;
  return { at, kind, keys: locks.map(({ key }) => key), tag, label, token, account: "", source: "sampled" };
}

function isHeld({ answer }: ClaimView): boolean {
  return answer.state === "held";
}

class Histogram {
  readonly #counts = new Array<number>(BOUNDS_MS.length + 1).fill(0);
  #isEmpty = true;

  add(ms: number): void {
    const bucket = BOUNDS_MS.findIndex((bound) => ms <= bound);
    const index = bucket === -1 ? BOUNDS_MS.length : bucket;
    this.#counts[index] = (this.#counts[index] as number) + 1;
    this.#isEmpty = false;
  }

  toJson(): TimeHistogram | null {
    return this.#isEmpty ? null : { boundsMs: BOUNDS_MS, counts: [...this.#counts] };
  }
}
