/** What the members have answered about one claim. */

import type { Answer, EndReason, Pause } from "../../spi/driver.ts";
import { AnswerCount } from "./answer-count.ts";
import { toMajority } from "./quorum-claim.ts";

export class Tally {
  readonly #members: number;
  readonly #majority: number;
  /** Members that answered "held", "waiting", "none". */
  #heldCount = 0;
  #waitingCount = 0;
  #noneCount = 0;
  #notAskedCount = 0;
  #reason: EndReason | undefined;
  /** Pauses of members that answered "waiting" or "none" for no other reason. */
  readonly #pauses: Pause[] = [];
  readonly count: AnswerCount;

  constructor(members: number) {
    this.#members = members;
    this.#majority = toMajority(members);
    this.count = new AnswerCount(members);
  }

  add(answer: Answer): void {
    this.count.addAnswered();
    if (answer.state === "held") this.#heldCount++;
    else if (answer.state === "waiting") this.#waitingCount++;
    else this.#noneCount++;
    if (answer.state === "none") this.#reason ??= answer.reason;
    if (answer.state !== "held" && answer.paused !== undefined) this.#pauses.push(answer.paused);
  }

  /**
   * The pause that keeps the claim from a majority; undefined: the members that do not pause prevent one already. The
   * pause lasts until enough members grant again for a majority.
   */
  get paused(): Pause | undefined {
    const missingCount = this.#majority - this.#heldCount;
    if (missingCount <= 0 || this.#busyCount > this.#minority) return undefined;
    const pauses = this.#pauses.toSorted((left, right) => left.remainingMs - right.remainingMs);
    return pauses[Math.min(missingCount, pauses.length) - 1];
  }

  /** The answer "none", with the end reason if a member has one. */
  get noneAnswer(): Answer {
    return this.#reason === undefined ? { state: "none" } : { state: "none", reason: this.#reason };
  }

  /** Counts a member that was not asked, since the claim has no entry there. */
  addNotAsked(): void {
    this.#notAskedCount++;
  }

  addError(error: unknown): void {
    this.count.addError(error);
  }

  /**
   * A majority holds; or none can hold any more, whatever the others answer, and it is known whether the claim waits or
   * is gone, and whether a pause is the reason. So the result (held, busy or paused) does not depend on the order of
   * the answers.
   */
  get isDecided(): boolean {
    const minority = this.#minority;
    if (this.#heldCount >= this.#majority || this.count.hasFailed) return true;
    if (this.#isReasonOpen) return false;
    const goneCount = this.#noneCount + this.#notAskedCount;
    return (
      goneCount > minority ||
      (goneCount + this.#waitingCount > minority && this.#heldCount + this.#waitingCount >= this.#majority)
    );
  }

  /**
   * A member pauses, and the unanswered members could still make the key busy without any pause. Unknown is not busy.
   */
  get #isReasonOpen(): boolean {
    if (this.#pauses.length === 0 || this.#busyCount > this.#minority) return false;
    const unanswered = this.#members - this.count.answeredCount - this.#notAskedCount - this.count.errors.length;
    return this.#busyCount + unanswered > this.#minority;
  }

  /** Members that refuse without a pause. */
  get #busyCount(): number {
    return this.#noneCount + this.#waitingCount - this.#pauses.length;
  }

  /** How many members a majority can do without. */
  get #minority(): number {
    return this.#members - this.#majority;
  }
}
