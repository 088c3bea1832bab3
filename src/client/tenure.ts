/** One local holder's time with a claim: from its grant, or the hand-off to it, until its last handle is given back. */

import { LockLostError } from "../errors.ts";
import type { LostReason } from "../spi/driver.ts";
import type { KeyLane } from "./key-lane.ts";
import type { Target } from "./target.ts";
import type { Timed } from "./timed.ts";
import type { Tracked } from "./tracked.ts";

export class Tenure implements Timed {
  readonly lane: KeyLane;
  readonly tracked: Tracked;
  readonly target: Target;
  readonly token: bigint;
  readonly since: number;
  /** Handles not given back yet; the first one, and one for each request that joined. */
  handles = 1;
  /** Async contexts entered with it: who is in one cannot let the lock travel. */
  contexts = 0;
  lostReason: LostReason | null = null;
  #abort: AbortController | null = null;
  // the end of maxHold
  readonly rides = false;
  dueAt = 0;
  heapIndex = -1;

  constructor(lane: KeyLane, tracked: Tracked, target: Target, token: bigint, since: number) {
    this.lane = lane;
    this.tracked = tracked;
    this.target = target;
    this.token = token;
    this.since = since;
  }

  /** May it be joined, and does its holder still count as one? Says nothing of the lease. */
  get isOpen(): boolean {
    return this.handles > 0;
  }

  /** By our clocks, read now. */
  get isHeld(): boolean {
    return this.handles > 0 && this.lostReason === null && this.lane.believes(this.tracked);
  }

  get remainingMs(): number {
    return this.isHeld ? this.lane.remainingMs(this.tracked) : 0;
  }

  due(): void {
    this.lane.overstay(this);
  }

  lose(reason: LostReason): void {
    if (this.lostReason !== null) return;
    this.lostReason = reason;
    this.#abort?.abort(this.lostError());
  }

  /** Aborted when it is lost. Of all who have joined it, so that none leaves anything behind; made when first read. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    // read now: the timer that would tell of a loss may be late
    if (!this.isHeld && this.lostReason !== null) this.#abort.abort(this.lostError());
    return this.#abort.signal;
  }

  lostError(): LockLostError {
    return lostError(this.lostReason ?? "expired", this.target.keys);
  }

  /** One handle less; the last one gives it back. Was it ours until now? */
  drop(): boolean | Promise<boolean> {
    this.handles--;
    return this.handles > 0 ? this.isOrWasHeld() : this.lane.handBack(this);
  }

  isOrWasHeld(): boolean {
    return this.lostReason === null && this.lane.believes(this.tracked);
  }
}

const WHY: Readonly<Record<LostReason, string>> = {
  expired: "its lease ended before a renewal succeeded",
  released: "it was released",
  revoked: "it was revoked",
  maxHold: "it was held longer than maxHold allows",
  unknown: "the store does not know it any more",
};

/** The loss as its holder is told it. */
export function lostError(reason: LostReason, keys: readonly string[]): LockLostError {
  return new LockLostError(`lost the lock on ${named(keys)}: ${WHY[reason]}`, reason, { keys });
}

/** Keys for a message. */
export function named(keys: readonly string[]): string {
  const shown = keys.slice(0, 3).map((key) => JSON.stringify(key.length > 60 ? `${key.slice(0, 60)}…` : key));
  return keys.length > 3 ? `${shown.join(", ")} and ${keys.length - 3} more` : shown.join(", ");
}
