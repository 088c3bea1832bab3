/** What the members said when all were asked about one claim. */

import { isFatal } from "../../errors.ts";
import type { Answer, Ending, Pause } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";

export class Round {
  readonly #members: number;
  readonly #majority: number;
  /** Said "held", "waiting", "none". */
  #yes = 0;
  #waiting = 0;
  #none = 0;
  #absent = 0;
  #reason: Ending | undefined;
  /** Pauses of members that said "waiting" or "none" for no other reason. */
  readonly #pauses: Pause[] = [];
  readonly errors: unknown[] = [];

  constructor(members: number) {
    this.#members = members;
    this.#majority = majorityOf(members);
  }

  said(answer: Answer): void {
    if (answer.state === "held") this.#yes++;
    else if (answer.state === "waiting") this.#waiting++;
    else this.#none++;
    if (answer.state === "none") this.#reason ??= answer.reason;
    if (answer.state !== "held" && answer.paused !== undefined) this.#pauses.push(answer.paused);
  }

  /**
   * The pause that keeps the claim from a majority; undefined: members that do not pause refuse it by themselves. It lasts
   * until as many members grant again as are wanted for a majority.
   */
  get paused(): Pause | undefined {
    const wanted = this.#majority - this.#yes;
    if (wanted <= 0 || this.#busy > this.#without) return undefined;
    const soonest = this.#pauses.toSorted((one, other) => one.remainingMs - other.remainingMs);
    return soonest[Math.min(wanted, soonest.length) - 1];
  }

  /** That the claim is gone, and why, if a member knows. */
  get none(): Answer {
    return this.#reason === undefined ? { state: "none" } : { state: "none", reason: this.#reason };
  }

  /** It has no place there and was not asked. */
  absent(): void {
    this.#absent++;
  }

  failed(error: unknown): void {
    this.errors.push(error);
  }

  /**
   * A majority holds; or it can hold no more, whatever the others say, and it is known whether it waits or is gone, and
   * whether a pause is the reason. So whether it is held, busy or paused does not depend on the order of the answers.
   */
  get isDecided(): boolean {
    const without = this.#without;
    if (this.#yes >= this.#majority || this.errors.length > without) return true;
    if (this.#isReasonOpen) return false;
    const gone = this.#none + this.#absent;
    return gone > without || (gone + this.#waiting > without && this.#yes + this.#waiting >= this.#majority);
  }

  /** A member pauses, and those that have not answered yet can make the others refuse by themselves. Unknown is not busy. */
  get #isReasonOpen(): boolean {
    if (this.#pauses.length === 0 || this.#busy > this.#without) return false;
    const unanswered = this.#members - this.answered - this.#absent - this.errors.length;
    return this.#busy + unanswered > this.#without;
  }

  /** Members that refuse and do not pause. */
  get #busy(): number {
    return this.#none + this.#waiting - this.#pauses.length;
  }

  /** A majority can do without so many. */
  get #without(): number {
    return this.#members - this.#majority;
  }

  get answered(): number {
    return this.#yes + this.#waiting + this.#none;
  }

  /** A majority has spoken; what fewer say is unknown, not busy. */
  get isHeard(): boolean {
    return this.answered >= this.#majority;
  }

  /** Why too few have answered; fatal if so many refuse for good that asking again cannot mend it. */
  get failure(): unknown {
    const fatal = this.errors.filter(isFatal);
    if (fatal.length > this.#without) return fatal[0];
    const cause = fatal[0] ?? this.errors[0];
    const text = `quorum: ${this.answered} of ${this.#members} members answered, ${this.#majority} must`;
    return cause === undefined ? new Error(text) : new Error(text, { cause });
  }
}
