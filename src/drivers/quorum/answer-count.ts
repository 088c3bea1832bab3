/** Counts the members that have answered a call, whatever they said. */

import { isFatalError } from "../../errors.ts";
import { toMajority } from "./quorum-claim.ts";

export class AnswerCount {
  readonly #members: number;
  readonly #majority: number;
  answeredCount = 0;
  readonly errors: unknown[] = [];

  constructor(members: number) {
    this.#members = members;
    this.#majority = toMajority(members);
  }

  addAnswered(): void {
    this.answeredCount++;
  }

  addError(error: unknown): void {
    this.errors.push(error);
  }

  /** Has a majority answered? With fewer answers the state is unknown, not busy. */
  get hasMajorityAnswered(): boolean {
    return this.answeredCount >= this.#majority;
  }

  /** Have so many members failed that no majority can answer any more? */
  get hasFailed(): boolean {
    return this.errors.length > this.#members - this.#majority;
  }

  /** Why too few members have answered; fatal if so many refuse permanently that a retry cannot help. */
  get failure(): unknown {
    const fatal = this.errors.filter(isFatalError);
    if (fatal.length > this.#members - this.#majority) return fatal[0];
    const cause = fatal[0] ?? this.errors[0];
    const text = `quorum: ${this.answeredCount} of ${this.#members} members answered, ${this.#majority} must`;
    return cause === undefined ? new Error(text) : new Error(text, { cause });
  }
}
