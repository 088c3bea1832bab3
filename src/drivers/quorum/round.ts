/** What the members said when all were asked about one claim. */

import { isFatal } from "../../errors.ts";
import type { Answer, Ending } from "../../spi/driver.ts";
import { majorityOf } from "./ballot.ts";

export class Round {
  readonly #members: number;
  readonly #majority: number;
  /** Said "held", and said something else. */
  #yes = 0;
  #no = 0;
  #absent = 0;
  #reason: Ending | undefined;
  readonly errors: unknown[] = [];

  constructor(members: number) {
    this.#members = members;
    this.#majority = majorityOf(members);
  }

  said(answer: Answer): void {
    if (answer.state === "held") this.#yes++;
    else this.#no++;
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

  /** A majority holds, or can hold no more, whatever the others say. */
  get isDecided(): boolean {
    const without = this.#members - this.#majority;
    return this.#yes >= this.#majority || this.#no + this.#absent > without || this.errors.length > without;
  }

  get answered(): number {
    return this.#yes + this.#no;
  }

  /** A majority has spoken; what fewer say is unknown, not busy. */
  get isHeard(): boolean {
    return this.answered >= this.#majority;
  }

  /** Why too few have answered; what asking again cannot mend comes first. */
  get failure(): unknown {
    const fatal = this.errors.find(isFatal);
    if (fatal !== undefined) return fatal;
    const cause = this.errors[0];
    const text = `quorum: ${this.answered} of ${this.#members} members answered, ${this.#majority} must`;
    return cause === undefined ? new Error(text) : new Error(text, { cause });
  }
}
