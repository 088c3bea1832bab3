/** One local request while it waits: for the store, or behind others of this client. */

import { setMaxListeners } from "node:events";
import type { KeyLane } from "./key-lane.ts";
import type { Wish } from "./options.ts";
import type { Target } from "./target.ts";
import type { Tenure } from "./tenure.ts";
import type { Timed } from "./timed.ts";

export class Request implements Timed {
  previous: Request | null = null;
  next: Request | null = null;
  readonly target: Target;
  readonly wish: Wish;
  /** Asked once: not granted at once means busy. */
  readonly once: boolean;
  /** Nobody wants to know why it was busy. */
  readonly quiet: boolean;
  readonly startedAt: number;
  /** Where it stands; null when it is settled. */
  lane: KeyLane | null = null;
  // the end of its wait
  readonly rides = false;
  dueAt = 0;
  heapIndex = -1;
  readonly #give: (tenure: Tenure) => unknown;
  readonly #resolve: (given: unknown) => void;
  readonly #reject: (error: unknown) => void;
  #onAbort: (() => void) | null = null;

  /** Settles with what `give` makes of a tenure, with null if `quiet` and the keys were not free, or with an error. */
  constructor(
    target: Target,
    wish: Wish,
    quiet: boolean,
    startedAt: number,
    give: (tenure: Tenure) => unknown,
    resolve: (given: unknown) => void,
    reject: (error: unknown) => void,
  ) {
    this.target = target;
    this.wish = wish;
    this.once = wish.waitMs === 0;
    this.quiet = quiet;
    this.startedAt = startedAt;
    this.#give = give;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** It comes to stand in this lane: from now on it can time out or be aborted. @throws what the signal throws */
  standIn(lane: KeyLane): void {
    const { waitMs, signal } = this.wish;
    if (signal !== undefined) {
      this.#onAbort = () => this.lane?.withdraw(this, signal.reason);
      // one signal may end a thousand waits at once: a listener each is meant, and no leak
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    this.lane = lane;
    if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY) lane.host.engine.set(this, this.startedAt + waitMs);
  }

  due(): void {
    this.lane?.timeOut(this);
  }

  grant(tenure: Tenure): void {
    this.stepOut();
    this.#resolve(this.#give(tenure));
  }

  /** Once, when it has left its lane. */
  refuse(error: unknown): void {
    this.stepOut();
    if (this.quiet && error === null) this.#resolve(null);
    else this.#reject(error);
  }

  /** It stands in no lane any more: nothing can time it out or abort it. */
  stepOut(): void {
    if (this.heapIndex !== -1) this.lane?.host.engine.unset(this);
    this.lane = null;
    if (this.#onAbort !== null) this.wish.signal?.removeEventListener("abort", this.#onAbort);
    this.#onAbort = null;
  }
}
