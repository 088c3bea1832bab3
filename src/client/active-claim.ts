/** One claim as the engine runs it: its machine's state, and who is told. */

import { nextWakeAt } from "../claim/machine.ts";
import type { ClaimSettings, ClaimState } from "../claim/state.ts";
import type { Answer, Claim, LostReason, Pause, PauseReason } from "../spi/driver.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import type { PendingRelease, ReleaseCallback } from "./release-queue.ts";
import type { ScheduledTask } from "./scheduled-task.ts";

/** Who made a claim, and hears what becomes of it. Called synchronously; may start or leave claims in turn. */
export interface ClaimListener {
  onGranted(now: number): void;
  /** The keys were not free (`wait: false`). */
  onBusy(): void;
  /** The place is gone; the claim is over. */
  onExpired(): void;
  /** The store failed for good; the claim is over. */
  onFailed(error: unknown): void;
  onLost(reason: LostReason): void;
  /** A renewal failed (true), or one succeeded again (false). */
  onUnconfirmed(isUnconfirmed: boolean): void;
  /** The store has said that the claim must wait. */
  onQueued(): void;
}

export class ActiveClaim implements ScheduledTask {
  readonly claim: Claim;
  readonly settings: ClaimSettings;
  readonly listener: ClaimListener;
  state: ClaimState;
  /** When the last call for it was sent: a ttl later the store has forgotten it. */
  lastSentAt: number;
  /** What the last failed call said. */
  lastError: unknown = null;
  /** The pause that the store told of last, and when it is over; null: it told of none. */
  pause: { readonly reason: PauseReason; readonly until: number } | null = null;
  /** Told how the release went. */
  onReleased: ReleaseCallback = noop;
  /** It has gone to somebody else: whatever is still heard of it does not concern us. */
  isForgotten = false;
  /** Its lease is being shortened for a detach: a renewal would restart the full one. Never taken back: see transfer.ts. */
  isShortened = false;
  /** Its release. A late answer that shows a place brings another, which may arrive first. */
  pendingRelease: PendingRelease | null = null;
  /** Its holder has been told of jeopardy, and of nothing since. */
  #isInJeopardy = false;
  /** The last call sent before the store's clock stepped: a later one's answer ends the jeopardy. Infinity: none did. */
  callAtClockStep: number = Number.POSITIVE_INFINITY;
  readonly mayRunEarly = true;
  dueAt = 0;
  heapIndex = -1;
  previousSameDue: HeapItem | undefined = undefined;
  nextSameDue: HeapItem | undefined = undefined;
  readonly #onDue: (activeClaim: ActiveClaim, now: number, withinMs: number) => void;

  constructor(
    claim: Claim,
    settings: ClaimSettings,
    listener: ClaimListener,
    state: ClaimState,
    now: number,
    onDue: (activeClaim: ActiveClaim, now: number, withinMs: number) => void,
  ) {
    this.claim = claim;
    this.settings = settings;
    this.listener = listener;
    this.state = state;
    this.lastSentAt = now;
    this.#onDue = onDue;
  }

  onDue(now: number, withinMs: number): void {
    this.#onDue(this, now, Math.min(withinMs, this.settings.ttlMs / 24));
  }

  /** The store has said something of it. */
  recordAnswer(answer: Answer, now: number): void {
    const pause = answer.state === "held" ? undefined : answer.paused;
    this.pause = pause === undefined ? null : { reason: pause.reason, until: now + pause.remainingMs };
  }

  /** Grants the store nothing new to anyone now, as far as it has said? */
  currentPause(now: number): Pause | undefined {
    const { pause } = this;
    if (pause === null || pause.until <= now) return undefined;
    return { reason: pause.reason, remainingMs: pause.until - now };
  }

  /** Why the store could not be asked. */
  get failure(): unknown {
    return this.lastError ?? new Error("the store did not answer in time");
  }

  /** The number of its last call. */
  get lastCall(): number {
    return this.state.status === "lost" || this.state.status === "over" ? 0 : this.state.callState.calls;
  }

  /** A call of a held claim failed, or the store's clock stepped: its holder hears of it once. */
  markUnconfirmed(): void {
    if (this.#isInJeopardy) return;
    this.#isInJeopardy = true;
    this.listener.onUnconfirmed(true);
  }

  /** The store has spoken since: all is well. */
  markConfirmed(): void {
    this.#isInJeopardy = false;
    this.callAtClockStep = Number.POSITIVE_INFINITY;
    this.listener.onUnconfirmed(false);
  }

  /** The store's clock stepped: what it said before may not hold. */
  onClockStep(): void {
    this.callAtClockStep = this.lastCall;
    this.markUnconfirmed();
  }

  forget(): void {
    this.isForgotten = true;
    this.state = { status: "over", hasUnansweredClaim: false };
  }

  /** Whoever waits to hear of the release is told once, of the first one. */
  takeOnReleased(): ReleaseCallback {
    const { onReleased } = this;
    this.onReleased = noop;
    return onReleased;
  }

  nextWakeAt(): number {
    return nextWakeAt(this.state, this.settings);
  }
}

function noop(): void {
  // nobody waits to hear of it
}
