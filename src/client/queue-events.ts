/** The events of one local queue. Without listeners none of them is made. */

import type { LostReason } from "../errors.ts";
import { modeOf } from "../spi/claim-info.ts";
import type { Clock } from "../util/clock.ts";
import type { Events, FailedOutcome, LockEvent } from "./events.ts";
import type { LocalHold, RequestOrigin } from "./local-hold.ts";

/** A request with the time at which it was made. */
interface TimedRequest extends RequestOrigin {
  readonly startedAt: number;
}

export class QueueEvents {
  readonly #events: Events;
  readonly #clock: Clock;
  /** The name of the driver. */
  readonly #store: string;

  constructor(events: Events, clock: Clock, store: string) {
    this.#events = events;
    this.#clock = clock;
    this.#store = store;
  }

  describe(localHold: LocalHold): LockEvent & { readonly token: bigint } {
    return { ...this.#describeRequest(localHold), token: localHold.token };
  }

  emitRequested(origin: RequestOrigin): void {
    if (!this.#events.hasListeners("requested")) return;
    this.#events.emit("requested", { ...this.#describeRequest(origin), label: origin.settings.label });
  }

  emitFailed(request: TimedRequest, error: unknown, outcome: FailedOutcome): void {
    if (!this.#events.hasListeners("failed")) return;
    const waitedMs = this.#clock.now() - request.startedAt;
    this.#events.emit("failed", { ...this.#describeRequest(request), waitedMs, outcome, error });
  }

  emitAcquired(localHold: LocalHold, startedAt: number): void {
    if (!this.#events.hasListeners("acquired")) return;
    const waitedMs = localHold.grantedAt - startedAt;
    this.#events.emit("acquired", { ...this.describe(localHold), waitedMs, label: localHold.settings.label });
  }

  emitWaiting(origin: RequestOrigin): void {
    if (!this.#events.hasListeners("waiting")) return;
    this.#events.emit("waiting", { ...this.#describeRequest(origin), label: origin.settings.label });
  }

  emitHandedOff(localHold: LocalHold | null): void {
    if (localHold === null || !this.#events.hasListeners("handedOff")) return;
    this.#events.emit("handedOff", this.describe(localHold));
  }

  emitReleased(localHold: LocalHold): void {
    if (!this.#events.hasListeners("released")) return;
    this.#events.emit("released", { ...this.describe(localHold), heldMs: this.#heldMs(localHold) });
  }

  emitAttached(localHold: LocalHold): void {
    if (this.#events.hasListeners("attached")) this.#events.emit("attached", this.describe(localHold));
  }

  emitDetached(localHold: LocalHold): void {
    if (!this.#events.hasListeners("detached")) return;
    this.#events.emit("detached", { ...this.describe(localHold), heldMs: this.#heldMs(localHold) });
  }

  emitLost(localHold: LocalHold, reason: LostReason): void {
    this.#events.emit("lost", { ...this.describe(localHold), reason, heldMs: this.#heldMs(localHold) });
  }

  emitConfirmation(event: "jeopardy" | "restored", localHold: LocalHold): void {
    const { activeClaim } = localHold;
    const detail = { ...this.describe(localHold), remainingMs: activeClaim.remainingMs(this.#clock.now()) };
    if (event === "restored") this.#events.emit(event, detail);
    else this.#events.emit(event, { ...detail, error: activeClaim.failure });
  }

  #describeRequest({ target, request, settings }: RequestOrigin | LocalHold): LockEvent {
    const { keyTemplate } = settings;
    return { keys: target.keys, keyTemplate, mode: modeOf(target.locks), store: this.#store, request };
  }

  #heldMs({ grantedAt }: LocalHold): number {
    return this.#clock.now() - grantedAt;
  }
}
