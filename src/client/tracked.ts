/** One claim as the engine runs it: its machine's state, and who is told. */

import { wakeAt } from "../core/claim.ts";
import type { ClaimState, Terms } from "../core/claim-state.ts";
import type { Scheduled } from "../core/schedule.ts";
import type { Answer, Claim, LostReason, Pause, PauseReason } from "../spi/driver.ts";
import type { Leaving, Released } from "./releases.ts";
import type { Timed } from "./timed.ts";

/** Who made a claim, and hears what becomes of it. Called synchronously; may start or leave claims in turn. */
export interface ClaimOwner {
  granted(now: number): void;
  /** The keys were not free (`wait: false`). */
  refused(): void;
  /** The place is gone; the claim is over. */
  expired(): void;
  /** The store failed for good; the claim is over. */
  rejected(error: unknown): void;
  lost(reason: LostReason): void;
  /** A renewal failed (true), or one succeeded again (false). */
  unsure(on: boolean): void;
  /** The store has said that the claim must wait. */
  waits(): void;
}

export class Tracked implements Timed {
  readonly claim: Claim;
  readonly terms: Terms;
  readonly owner: ClaimOwner;
  state: ClaimState;
  /** When the last call for it was sent: a ttl later the store has forgotten it. */
  lastSentAt: number;
  /** What the last failed call said. */
  error: unknown = null;
  /** The pause that the store told of last, and when it is over; null: it told of none. */
  paused: { readonly reason: PauseReason; readonly until: number } | null = null;
  /** Told how the release went. */
  released: Released = ignore;
  /** It has gone to somebody else: whatever is still heard of it does not concern us. */
  forgotten = false;
  /** Its lease is being shortened for a detach: a renewal would restart the full one. Never taken back: see detach.ts. */
  isShortened = false;
  /** Its release. A late answer that shows a place brings another, which may arrive first. */
  leaving: Leaving | null = null;
  /** Its holder has been told of jeopardy, and of nothing since. */
  #inJeopardy = false;
  /** The last call sent before the store's clock stepped: a later one's answer ends the jeopardy. Infinity: none did. */
  steppedAt: number = Number.POSITIVE_INFINITY;
  readonly rides = true;
  dueAt = 0;
  heapIndex = -1;
  before: Scheduled | undefined = undefined;
  behind: Scheduled | undefined = undefined;
  readonly #due: (tracked: Tracked, now: number, withinMs: number) => void;

  constructor(
    claim: Claim,
    terms: Terms,
    owner: ClaimOwner,
    state: ClaimState,
    now: number,
    due: (tracked: Tracked, now: number, withinMs: number) => void,
  ) {
    this.claim = claim;
    this.terms = terms;
    this.owner = owner;
    this.state = state;
    this.lastSentAt = now;
    this.#due = due;
  }

  due(now: number, withinMs: number): void {
    this.#due(this, now, Math.min(withinMs, this.terms.ttlMs / 24));
  }

  /** The store has said something of it. */
  heard(answer: Answer, now: number): void {
    const pause = answer.state === "held" ? undefined : answer.paused;
    this.paused = pause === undefined ? null : { reason: pause.reason, until: now + pause.remainingMs };
  }

  /** Grants the store nothing new to anyone now, as far as it has said? */
  pauseAt(now: number): Pause | undefined {
    const { paused } = this;
    if (paused === null || paused.until <= now) return undefined;
    return { reason: paused.reason, remainingMs: paused.until - now };
  }

  /** Why the store could not be asked. */
  get failure(): unknown {
    return this.error ?? new Error("the store did not answer in time");
  }

  /** The number of its last call. */
  get call(): number {
    return this.state.at === "lost" || this.state.at === "over" ? 0 : this.state.talk.calls;
  }

  /** A call of a held claim failed, or the store's clock stepped: its holder hears of it once. */
  doubted(): void {
    if (this.#inJeopardy) return;
    this.#inJeopardy = true;
    this.owner.unsure(true);
  }

  /** The store has spoken since: all is well. */
  confirmed(): void {
    this.#inJeopardy = false;
    this.steppedAt = Number.POSITIVE_INFINITY;
    this.owner.unsure(false);
  }

  /** The store's clock stepped: what it said before may not hold. */
  stepped(): void {
    this.steppedAt = this.call;
    this.doubted();
  }

  forget(): void {
    this.forgotten = true;
    this.state = { at: "over", unanswered: false };
  }

  /** Whoever waits to hear of the release is told once, of the first one. */
  takeReleased(): Released {
    const { released } = this;
    this.released = ignore;
    return released;
  }

  wakeAt(): number {
    return wakeAt(this.state, this.terms);
  }
}

function ignore(): void {
  // nobody waits to hear of it
}
