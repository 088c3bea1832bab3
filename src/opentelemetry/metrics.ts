/** The metrics of a client, from its events. */

import type { Attributes, Meter, UpDownCounter } from "@opentelemetry/api";
import type { LockEvent } from "../client/events.ts";
import type { Locks } from "../client/locks.ts";

/** From half a millisecond to five minutes: the default boundaries of a histogram are meant for milliseconds. */
const SECONDS = {
  unit: "s",
  advice: {
    explicitBucketBoundaries: [
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
    ],
  },
};

function createInstruments(meter: Meter) {
  return {
    wait: meter.createHistogram("holdfast.lock.wait", {
      ...SECONDS,
      description: "Time from a request to its lock, or to its end without one.",
    }),
    hold: meter.createHistogram("holdfast.lock.hold", {
      ...SECONDS,
      description: "Time from the grant of a lock to its release, loss or detachment.",
    }),
    renew: meter.createHistogram("holdfast.lock.renew", {
      ...SECONDS,
      description: "Time that a call to the store took which renews leases.",
    }),
    lost: meter.createCounter("holdfast.lock.lost", { unit: "{lock}", description: "Lost locks." }),
    waiting: meter.createUpDownCounter("holdfast.lock.waiting", {
      unit: "{request}",
      description: "Requests of this client that wait now.",
    }),
    held: meter.createUpDownCounter("holdfast.lock.held", {
      unit: "{lock}",
      description: "Locks that this client holds now.",
    }),
  };
}

/** The listeners; @param attributesOf what all metrics of a request have */
export function recordMetrics(
  locks: Locks,
  meter: Meter,
  attributesOf: (event: LockEvent) => Attributes,
): readonly Disposable[] {
  const { wait, hold, renew, lost, ...counters } = createInstruments(meter);
  const [waiting, held] = [new OpenCount(counters.waiting), new OpenCount(counters.held)];
  const endWait = (event: LockEvent & { readonly waitedMs: number }, outcome: string): void => {
    waiting.remove(event.request);
    wait.record(event.waitedMs / 1_000, { ...attributesOf(event), "holdfast.outcome": outcome });
  };
  const endHold = (event: LockEvent & { readonly heldMs: number }): void => {
    held.remove(event.request);
    hold.record(event.heldMs / 1_000, attributesOf(event));
  };
  return [
    locks.on("requested", (event) => waiting.add(event.request, attributesOf(event))),
    locks.on("acquired", (event) => {
      endWait(event, "granted");
      held.add(event.request, attributesOf(event));
    }),
    locks.on("failed", (event) => endWait(event, event.outcome)),
    locks.on("attached", (event) => held.add(event.request, attributesOf(event))),
    locks.on("released", endHold),
    locks.on("detached", endHold),
    locks.on("lost", (event) => {
      endHold(event);
      lost.add(1, { ...attributesOf(event), "holdfast.lost.reason": event.reason });
    }),
    locks.on("renewed", ({ store, tookMs, error }) => {
      const outcome = error === undefined ? "answered" : "error";
      renew.record(tookMs / 1_000, { "holdfast.store": store, "holdfast.outcome": outcome });
    }),
    waiting,
    held,
  ];
}

/** How many requests, or locks, are open. Ignores the end of one whose beginning it has not seen. */
class OpenCount implements Disposable {
  readonly #counter: UpDownCounter;
  readonly #open = new Map<number, Attributes>();

  constructor(counter: UpDownCounter) {
    this.#counter = counter;
  }

  add(request: number, attributes: Attributes): void {
    this.#open.set(request, attributes);
    this.#counter.add(1, attributes);
  }

  remove(request: number): void {
    const attributes = this.#open.get(request);
    // with the attributes of its beginning: otherwise two series would be wrong for ever
    if (attributes !== undefined && this.#open.delete(request)) this.#counter.add(-1, attributes);
  }

  [Symbol.dispose](): void {
    for (const request of [...this.#open.keys()]) this.remove(request);
  }
}
