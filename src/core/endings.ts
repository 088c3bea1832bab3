/**
 * How claims ended, remembered for a while: tombstones, which answer "none" to a late duplicate of `claim` (design
 * A.15: without one it could take a place nobody wants), and the reasons of other endings, kept only to tell people.
 */

import type { Answer, ClaimId, Ending } from "../spi/driver.ts";
import { Schedule } from "./schedule.ts";

/** Reasons are a courtesy: beyond this many they are dropped. Tombstones are kept then, too. */
const MOST_REASONS = 10_000;

interface Ended {
  readonly id: ClaimId;
  reason: Ending;
  dueAt: number;
  heapIndex: number;
}

export class Endings {
  readonly #ended = new Map<ClaimId, Ended>();
  readonly #forget = new Schedule<Ended>();
  readonly #most: number;

  /** most: what is remembered; beyond, the oldest is forgotten for the newest, whoever they are of. */
  constructor(most: number = Number.POSITIVE_INFINITY) {
    this.#most = most;
  }

  get size(): number {
    return this.#ended.size;
  }

  /** A late `claim` for this id must be answered "none" until then. */
  bury(id: ClaimId, reason: Ending, until: number): void {
    const known = this.#ended.get(id);
    if (known !== undefined) {
      known.reason = reason;
      this.#forget.set(known, Math.max(until, known.dueAt));
      return;
    }
    const ended: Ended = { id, reason, dueAt: 0, heapIndex: -1 };
    this.#ended.set(id, ended);
    this.#forget.set(ended, until);
    if (this.#ended.size > this.#most) this.#forgetOldest();
  }

  /** Remember why, if there is room. */
  note(id: ClaimId, reason: Ending, until: number): void {
    if (this.#ended.size < MOST_REASONS) this.bury(id, reason, until);
  }

  reasonOf(id: ClaimId): Ending | undefined {
    return this.#ended.size === 0 ? undefined : this.#ended.get(id)?.reason;
  }

  /** The answer about a claim that is not there. */
  none(id: ClaimId): Answer {
    const reason = this.reasonOf(id);
    return reason === undefined ? { state: "none" } : { state: "none", reason };
  }

  #forgetOldest(): void {
    const [oldest] = this.#ended.values();
    this.#forget.remove(oldest as Ended);
    this.#ended.delete((oldest as Ended).id);
  }

  forget(now: number): void {
    for (let ended = this.#forget.takeDue(now); ended !== null; ended = this.#forget.takeDue(now)) {
      this.#ended.delete(ended.id);
    }
  }
}
