// The result of a round, for every order in which three and five members can answer: it never depends on that order.

import { describe, expect, test } from "vitest";
import { toMajority } from "../../../../src/drivers/quorum/quorum-claim.ts";
import { Tally } from "../../../../src/drivers/quorum/tally.ts";
import type { Answer } from "../../../../src/spi/driver.ts";

const paused = { reason: "recovery", remainingMs: 5_000 } as const;
const noneAnswer: Answer = { state: "none" };
const waiting: Answer = { state: "waiting", remainingMs: 1_000, recheckMs: 100 };

/** A member's answer in a letter; a capital pauses. */
const ANSWERS: Readonly<Record<string, Answer>> = {
  h: { state: "held", token: 1n, tokenCount: 1, remainingMs: 1_000 },
  w: waiting,
  n: noneAnswer,
  W: { ...waiting, paused },
  N: { ...noneAnswer, paused },
};
/** f: the call failed; a: the member was not asked. */
const ALL = [...Object.keys(ANSWERS), "f", "a"];

/** All orders of this number of letters. */
function orders(letters: readonly string[], length: number): string[] {
  return length === 0
    ? [""]
    : orders(letters, length - 1).flatMap((sequence) => letters.map((letter) => sequence + letter));
}

function tallyOf(members: number, sequence: string): Tally {
  const tally = new Tally(members);
  for (const letter of sequence) {
    const answer = ANSWERS[letter];
    if (answer !== undefined) tally.add(answer);
    else if (letter === "f") tally.addError(new Error("no answer"));
    else tally.addNotAsked();
  }
  return tally;
}

const count = (sequence: string, letters: string): number =>
  [...sequence].filter((letter) => letters.includes(letter)).length;
const isBusy = (members: number, sequence: string): boolean => count(sequence, "wn") > members - toMajority(members);
const hasPause = (sequence: string): boolean => count(sequence, "WN") > 0;

/** The result when all members have answered, computed from their numbers alone. */
function outcomeOf(sequence: string): string {
  const members = sequence.length;
  if (count(sequence, "h") >= toMajority(members)) return "held";
  const state = count(sequence, "nN") > members - toMajority(members) ? "gone" : "waits";
  return isBusy(members, sequence) ? state : `${state}, paused`;
}

/** All results reported so far, and those still possible. */
function outcomes<T>(sequences: readonly string[], outcome: (said: string) => T): Map<string, Set<T>> {
  const outcomesByPrefix = new Map<string, Set<T>>();
  for (const sequence of sequences) {
    for (let length = 0; length <= sequence.length; length++) {
      const soFar = sequence.slice(0, length);
      const possibleOutcomes = outcomesByPrefix.get(soFar) ?? new Set();
      outcomesByPrefix.set(soFar, possibleOutcomes.add(outcome(sequence)));
    }
  }
  return outcomesByPrefix;
}

describe.each([3, 5])("a round of %i members", (members) => {
  test("is decided as soon as, and not before, no missing answer can change the result", () => {
    const mismatches: string[] = [];
    for (const [sequence, possibleOutcomes] of outcomes(orders(Object.keys(ANSWERS), members), outcomeOf)) {
      const tally = tallyOf(members, sequence);
      const [outcome = ""] = possibleOutcomes;
      if (tally.isDecided !== (possibleOutcomes.size === 1))
        mismatches.push(`${sequence}: ${tally.isDecided}, ${[...possibleOutcomes].join()}`);
      else if (tally.isDecided && (tally.paused !== undefined) !== outcome.endsWith("paused"))
        mismatches.push(sequence);
    }
    expect(mismatches).toEqual([]);
  });

  test("reports a pause only where the other members cannot refuse alone, whichever fails or is not asked", () => {
    const mismatches: string[] = [];
    for (const [sequence, possibleOutcomes] of outcomes(orders(ALL, members), (fullSequence) =>
      isBusy(members, fullSequence),
    )) {
      const { isDecided, paused: isPaused } = tallyOf(members, sequence);
      // without a pause it is an ordinary round, which waits for nothing more
      const isOrdinary = tallyOf(members, sequence.toLowerCase()).isDecided;
      const isOpen = hasPause(sequence) && possibleOutcomes.size > 1;
      if (isDecided !== (isOrdinary && !isOpen)) mismatches.push(`${sequence}: ${isDecided}`);
      const isHeld = count(sequence, "h") >= toMajority(members);
      const isTold = hasPause(sequence) && !isHeld && !isBusy(members, sequence);
      if (isDecided && (isPaused !== undefined) !== isTold) mismatches.push(`${sequence}: ${isPaused?.reason}`);
    }
    expect(mismatches).toEqual([]);
  });
});
