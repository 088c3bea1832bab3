/**
 * The last events of a store, for the pages of the dashboard, and what they say about rates and times. The lock server
 * reports the events of all claims, the gateway's own event log those of the claims that pass through the gateway. In the
 * second case consecutive lists show what happens to the other claims.
 *
 * Invariants: the records are plain: they keep no claim alive. A reported event is not recorded a second time from a list:
 * what a list shows is recorded with the next list, when its event has been reported at the latest. No event is recorded
 * from lists that are not complete: a claim that is missing there may still exist.
 */

import type { ServerEvent } from "../../protocol/admin-frames.ts";
import type { ClaimView } from "../../spi/driver.ts";
import type { Listing } from "./store-sampler.ts";
import type { DashboardEvent, TimeHistogram } from "./view-types.ts";

/** Events that are kept. */
const MAX_EVENTS = 10_000;
/** Claims that are remembered: the start of each, to measure times, and those with reported events. */
const MAX_CLAIMS = 100_000;
const BOUNDS_MS: readonly number[] = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000];
/** Kinds of events that end a hold. */
const ENDS: ReadonlySet<string> = new Set(["released", "expired", "disconnected", "removed", "ended"]);
const GRANTS: ReadonlySet<string> = new Set(["granted", "reclaimed"]);

/** Kinds of events that a gateway reports as the last one of a claim; a lock server reports the end, too. */
const LOSSES: ReadonlySet<string> = new Set(["revoked", "maxHoldExceeded"]);

type NewEvent = Omit<DashboardEvent, "sequence">;

interface ClaimTimes {
  readonly isHeld: boolean;
  readonly since: number;
}

export class EventHistory {
  /** Since when no event was missed, as far as lists can show. */
  since: number;
  /** The source of events: the lock server reports those of all claims, the gateway those of claims through it. */
  origin: "server" | "gateway" = "gateway";
  /** Since the start of this program, and from both sources. */
  grantCount = 0;
  endCount = 0;
  readonly #wall: () => number;
  readonly #events: DashboardEvent[] = [];
  readonly #listeners = new Set<() => void>();
  /** By tag, of claims with reported events. */
  readonly #times = new Map<string, ClaimTimes>();
  readonly #waits = new Histogram();
  readonly #holds = new Histogram();
  #sequence = 0;
  #previous: Listing | null = null;
  /** What the last list showed. */
  #sampled: NewEvent[] = [];
  /** The claims with events that were reported since the last list, and since the one before; empty without lists. */
  #reported = new Set<string>();
  #reportedBefore = new Set<string>();
  /** The claims that were revoked through the pages: their revocation is not recorded a second time. */
  readonly #revoked = new Set<string>();

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

  /** The events after this one, oldest first, at most `max`. */
  after(sequence: number, max: number = MAX_EVENTS): readonly DashboardEvent[] {
    const first = this.#events[0];
    if (first === undefined) return [];
    const start = Math.max(0, sequence + 1 - first.sequence);
    return this.#events.slice(start, start + max);
  }

  /** Calls the listener when there are more events. */
  subscribe(listener: () => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** Records events of the source. hasGap: events before these were missed. */
  addReported(events: readonly ServerEvent[], hasGap: boolean): void {
    if (hasGap) this.markGap();
    const records = events.map(toRecord).filter((record) => !this.#isRepeated(record));
    for (const record of records) {
      this.#measure(record);
      if (this.#previous !== null && this.#reported.size < MAX_CLAIMS) this.#reported.add(record.tag);
    }
    this.#count(records);
    this.#append(records);
  }

  /** Records a revocation that was done through the pages. The end of its claim is another event. */
  addRevocation(event: NewEvent): void {
    // a lock server reports it, with the operator and the reason
    if (this.origin === "server") return;
    if (this.#times.delete(event.tag) && this.#revoked.size < MAX_EVENTS) this.#revoked.add(event.tag);
    this.#append([event]);
  }

  /** Events were missed until now, and the next list cannot be compared. */
  markGap(): void {
    this.since = this.#wall();
    this.#times.clear();
    this.#reported.clear();
    this.#reportedBefore.clear();
    this.#sampled = [];
    this.#previous = null;
  }

  /** Records how the previous list of all claims differed from the one before it; null: this list failed. */
  addListing(listing: Listing | null): void {
    if (this.origin === "server") return;
    const isReported = (tag: string): boolean =>
      this.#times.has(tag) || this.#reported.has(tag) || this.#reportedBefore.has(tag);
    const sampled = this.#sampled.filter(({ tag }) => !isReported(tag));
    this.#count(sampled);
    this.#append(sampled);
    const canCompare = this.#previous?.isComplete === true && listing?.isComplete === true;
    this.#sampled = canCompare ? this.#compare(this.#previous as Listing, listing as Listing) : [];
    if (!canCompare) this.since = this.#wall();
    this.#previous = listing;
    this.#reportedBefore = this.#reported;
    this.#reported = new Set();
  }

  #compare(previous: Listing, listing: Listing): NewEvent[] {
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

  /** Is it the gateway's report of a revocation that was recorded when it was done through the pages? */
  #isRepeated({ kind, tag }: NewEvent): boolean {
    return kind === "revoked" && this.#revoked.delete(tag);
  }

  #count(records: readonly NewEvent[]): void {
    for (const { kind } of records) {
      if (GRANTS.has(kind)) this.grantCount++;
      else if (ENDS.has(kind)) this.endCount++;
    }
  }

  #append(records: readonly NewEvent[]): void {
    if (records.length === 0) return;
    const events = records.map((record) => {
      this.#sequence++;
      return { ...record, sequence: this.#sequence };
    });
    this.#events.push(...events);
    if (this.#events.length > MAX_EVENTS) {
      const dropped = this.#events.splice(0, this.#events.length - MAX_EVENTS);
      this.since = Math.max(this.since, (dropped.at(-1) as DashboardEvent).at);
    }
    for (const listener of [...this.#listeners]) listener();
  }

  #measure({ kind, tag, at }: NewEvent): void {
    const times = this.#times.get(tag);
    if (kind === "waiting") this.#remember(tag, { isHeld: false, since: at });
    else if (GRANTS.has(kind)) {
      // one that never waited was granted at once
      if (kind === "granted") this.#waits.add(times === undefined ? 0 : at - times.since);
      this.#remember(tag, { isHeld: true, since: at });
    } else if (kind === "withdrawn" || ENDS.has(kind) || (this.origin === "gateway" && LOSSES.has(kind))) {
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
    ...{ at, kind, keys, tag, label, account, source: "reported" },
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
