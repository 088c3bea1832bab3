/** What the members said when all were asked about one claim. */

import { isFatal } from "../../errors.ts";
import type { Answer, Ending } from "../../spi/driver.ts";
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

  /** A majority holds; or it can hold no more, whatever the others say, and it is known whether it waits or is gone. */
  get isDecided(): boolean {
    const without = this.#members - this.#majority;
    if (this.#yes >= this.#majority || this.errors.length > without) return true;
    const gone = this.#none + this.#absent;
    return gone > without || (gone + this.#waiting > without && this.#yes + this.#waiting >= this.#majority);
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
    if (fatal.length > this.#members - this.#majority) return fatal[0];
    const cause = fatal[0] ?? this.errors[0];
    const text = `quorum: ${this.answered} of ${this.#members} members answered, ${this.#majority} must`;
    return cause === undefined ? new Error(text) : new Error(text, { cause });
  }
}
