/** What the members said when all were asked about one claim. */

import { isFatalError } from "../../errors.ts";
import type { Answer, EndReason, Pause } from "../../spi/driver.ts";
import { toMajority } from "./quorum-claim.ts";

export class Tally {
  readonly #members: number;
  readonly #majority: number;
  /** Said "held", "waiting", "none". */
  #heldCount = 0;
  #waitingCount = 0;
  #noneCount = 0;
  #notAskedCount = 0;
  #reason: EndReason | undefined;
  /** Pauses of members that said "waiting" or "none" for no other reason. */
  readonly #pauses: Pause[] = [];
  readonly errors: unknown[] = [];

  constructor(members: number) {
    this.#members = members;
    this.#majority = toMajority(members);
  }

  add(answer: Answer): void {
    if (answer.state === "held") this.#heldCount++;
    else if (answer.state === "waiting") this.#waitingCount++;
    else this.#noneCount++;
    if (answer.state === "none") this.#reason ??= answer.reason;
    if (answer.state !== "held" && answer.paused !== undefined) this.#pauses.push(answer.paused);
  }

  /**
   * The pause that keeps the claim from a majority; undefined: members that do not pause refuse it by themselves. It lasts
   * until as many members grant again as are wanted for a majority.
   */
  get paused(): Pause | undefined {
    const missingCount = this.#majority - this.#heldCount;
    if (missingCount <= 0 || this.#busyCount > this.#minority) return undefined;
    const pauses = this.#pauses.toSorted((left, right) => left.remainingMs - right.remainingMs);
    return pauses[Math.min(missingCount, pauses.length) - 1];
  }

  /** That the claim is gone, and why, if a member knows. */
  get noneAnswer(): Answer {
    return this.#reason === undefined ? { state: "none" } : { state: "none", reason: this.#reason };
  }

  /** It has no place there and was not asked. */
  addNotAsked(): void {
    this.#notAskedCount++;
  }

  addError(error: unknown): void {
    this.errors.push(error);
  }

  /**
   * A majority holds; or it can hold no more, whatever the others say, and it is known whether it waits or is gone, and
   * whether a pause is the reason. So whether it is held, busy or paused does not depend on the order of the answers.
   */
  get isDecided(): boolean {
    const minority = this.#minority;
    if (this.#heldCount >= this.#majority || this.errors.length > minority) return true;
    if (this.#isReasonOpen) return false;
    const goneCount = this.#noneCount + this.#notAskedCount;
    return (
      goneCount > minority ||
      (goneCount + this.#waitingCount > minority && this.#heldCount + this.#waitingCount >= this.#majority)
    );
  }

  /** A member pauses, and those that have not answered yet can make the others refuse by themselves. Unknown is not busy. */
  get #isReasonOpen(): boolean {
    if (this.#pauses.length === 0 || this.#busyCount > this.#minority) return false;
    const unanswered = this.#members - this.answeredCount - this.#notAskedCount - this.errors.length;
    return this.#busyCount + unanswered > this.#minority;
  }

  /** Members that refuse and do not pause. */
  get #busyCount(): number {
    return this.#noneCount + this.#waitingCount - this.#pauses.length;
  }

  /** A majority can do without so many. */
  get #minority(): number {
    return this.#members - this.#majority;
  }

  get answeredCount(): number {
    return this.#heldCount + this.#waitingCount + this.#noneCount;
  }

  /** A majority has spoken; what fewer say is unknown, not busy. */
  get hasMajorityAnswered(): boolean {
    return this.answeredCount >= this.#majority;
  }

  /** Why too few have answered; fatal if so many refuse for good that asking again cannot mend it. */
  get failure(): unknown {
    const fatal = this.errors.filter(isFatalError);
    if (fatal.length > this.#minority) return fatal[0];
    const cause = fatal[0] ?? this.errors[0];
    const text = `quorum: ${this.answeredCount} of ${this.#members} members answered, ${this.#majority} must`;
    return cause === undefined ? new Error(text) : new Error(text, { cause });
  }
}
