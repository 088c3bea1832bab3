/** The figures of the store over time, for the charts of the dashboard: one sample for each list of all claims. */

import type { Clock } from "../../util/clock.ts";
import type { EventHistory } from "./event-history.ts";
import type { Listing } from "./store-sampler.ts";
import type { Sample } from "./view-types.ts";

/** An hour, at one list every 2 s. */
const MAX_SAMPLES = 1_800;

export class SampleHistory {
  readonly #clock: Clock;
  readonly #events: Pick<EventHistory, "grantCount" | "endCount">;
  readonly #samples: Sample[] = [];
  #counted: { readonly at: number; readonly grants: number; readonly ends: number };

  constructor(clock: Clock, events: Pick<EventHistory, "grantCount" | "endCount">) {
    this.#clock = clock;
    this.#events = events;
    this.#counted = { at: clock.now(), grants: events.grantCount, ends: events.endCount };
  }

  /** Oldest first. */
  get samples(): readonly Sample[] {
    return this.#samples;
  }

  /** null: the store did not answer. */
  add(listing: Listing | null): void {
    const now = this.#clock.now();
    const { grantCount, endCount } = this.#events;
    const seconds = Math.max(now - this.#counted.at, 1) / 1_000;
    this.#samples.push({
      at: this.#clock.wall(),
      ...countClaims(listing),
      grantsPerSecond: (grantCount - this.#counted.grants) / seconds,
      endsPerSecond: (endCount - this.#counted.ends) / seconds,
    });
    this.#counted = { at: now, grants: grantCount, ends: endCount };
    if (this.#samples.length > MAX_SAMPLES) this.#samples.shift();
  }
}

function countClaims(listing: Listing | null): Pick<Sample, "held" | "waiting" | "longestWaitMs"> {
  if (listing === null) return { held: null, waiting: null, longestWaitMs: null };
  const waiting = listing.views.filter(({ answer }) => answer.state !== "held");
  const longestWaitMs = waiting.reduce<number | null>((longest, { ageMs }) => Math.max(longest ?? 0, ageMs), null);
  return { held: listing.views.length - waiting.length, waiting: waiting.length, longestWaitMs };
}
