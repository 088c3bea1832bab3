/** One claim that the engine runs: the state of its machine, and its listener. */

import { nextWakeAt } from "../claim/machine.ts";
import type { ClaimSettings, ClaimState } from "../claim/state.ts";
import type { LostReason, PauseReason } from "../errors.ts";
import type { Answer, Claim, Pause } from "../spi/driver.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import type { PendingRelease, ReleaseCallback } from "./release-queue.ts";
import type { ScheduledTask } from "./scheduled-task.ts";

/** Receives the events of a claim. Called synchronously; may start or release claims in turn. */
export interface ClaimListener {
  onGranted(now: number): void;
  /** The keys were not free (`wait: false`). */
  onBusy(): void;
  /** The claim lost its queue entry before it was granted; it is over. */
  onExpired(): void;
  /** The store failed for good; the claim is over. */
  onFailed(error: unknown): void;
  onLost(reason: LostReason): void;
  /** A renewal failed (true), or one succeeded again (false). */
  onUnconfirmed(isUnconfirmed: boolean): void;
  /** The store has queued the claim. */
  onQueued(): void;
}

export class ActiveClaim implements ScheduledTask {
  readonly claim: Claim;
  readonly settings: ClaimSettings;
  readonly listener: ClaimListener;
  state: ClaimState;
  /** When the last call for this claim was sent. One ttl later the store has dropped the claim. */
  lastSentAt: number;
  /** The error of the last failed call. */
  lastError: unknown = null;
  /** The pause in the store's last answer, and when it ends; null if there was none. */
  pause: { readonly reason: PauseReason; readonly until: number } | null = null;
  /** Receives the result of the release. */
  onReleased: ReleaseCallback = noop;
  /** The claim was transferred to another client: late answers about it are ignored. */
  isForgotten = false;
  /** A detach is shortening the lease: a renewal would restart the full one. Never reset: see transfer.ts. */
  isShortened = false;
  /** The release in progress. A late answer that shows an entry in the queue causes a second one, which may arrive first. */
  pendingRelease: PendingRelease | null = null;
  /** `jeopardy` was emitted, and `restored` not yet. */
  #isInJeopardy = false;
  /** The last call sent before the store's clock stepped; the answer to a later call ends the jeopardy. Infinity: no step. */
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

  /** Takes over the pause from an answer of the store. */
  recordAnswer(answer: Answer, now: number): void {
    const pause = answer.state === "held" ? undefined : answer.paused;
    this.pause = pause === undefined ? null : { reason: pause.reason, until: now + pause.remainingMs };
  }

  /** The pause that the store reported last, if it is not over yet. */
  currentPause(now: number): Pause | undefined {
    const { pause } = this;
    if (pause === null || pause.until <= now) return undefined;
    return { reason: pause.reason, remainingMs: pause.until - now };
  }

  /** Why the last call failed. */
  get failure(): unknown {
    return this.lastError ?? new Error("the store did not answer in time");
  }

  /** The number of its last call. */
  get lastCall(): number {
    return this.state.status === "lost" || this.state.status === "over" ? 0 : this.state.callState.calls;
  }

  /** A call of a held claim failed, or the store's clock stepped. Emits `jeopardy` once. */
  markUnconfirmed(): void {
    if (this.#isInJeopardy) return;
    this.#isInJeopardy = true;
    this.listener.onUnconfirmed(true);
  }

  /** The store has confirmed the claim since. */
  markConfirmed(): void {
    this.#isInJeopardy = false;
    this.callAtClockStep = Number.POSITIVE_INFINITY;
    this.listener.onUnconfirmed(false);
  }

  /** The store's clock stepped: the lease of an earlier answer may have ended. */
  onClockStep(): void {
    this.callAtClockStep = this.lastCall;
    this.markUnconfirmed();
  }

  forget(): void {
    this.isForgotten = true;
    this.state = { status: "over", hasUnansweredClaim: false };
  }

  /** Returns the callback and clears it: only the first release reports its result. */
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
  // the default: no caller waits for the release
}
