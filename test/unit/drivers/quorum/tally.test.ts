// The result of a round, for every order in which three and five members can answer: it never depends on that order.

import { describe, expect, test } from "vitest";
import { toMajority } from "../../../../src/drivers/quorum/quorum-claim.ts";
import { Tally } from "../../../../src/drivers/quorum/tally.ts";
import type { Answer } from "../../../../src/spi/driver.ts";

const paused = { reason: "recovery", remainingMs: 5_000 } as const;
const none: Answer = { state: "none" };
const waiting: Answer = { state: "waiting", remainingMs: 1_000, recheckMs: 100 };

/** A member's answer in a letter; a capital pauses. */
const ANSWERS: Readonly<Record<string, Answer>> = {
  h: { state: "held", token: 1n, tokenCount: 1, remainingMs: 1_000 },
  w: waiting,
  n: none,
  W: { ...waiting, paused },
  N: { ...none, paused },
};
/** f: the call failed; a: the member was not asked. */
const ALL = [...Object.keys(ANSWERS), "f", "a"];

/** All orders of this number of letters. */
function orders(letters: readonly string[], length: number): string[] {
  return length === 0 ? [""] : orders(letters, length - 1).flatMap((said) => letters.map((letter) => said + letter));
}

function heard(members: number, said: string): Tally {
  const tally = new Tally(members);
  for (const letter of said) {
    const answer = ANSWERS[letter];
    if (answer !== undefined) tally.add(answer);
    else if (letter === "f") tally.addError(new Error("no answer"));
    else tally.addNotAsked();
  }
  return tally;
}

const count = (said: string, letters: string): number => [...said].filter((letter) => letters.includes(letter)).length;
const isBusy = (members: number, said: string): boolean => count(said, "wn") > members - toMajority(members);
const hasPause = (said: string): boolean => count(said, "WN") > 0;

/** The result when all members have answered, computed from their numbers alone. */
function outcomeOf(said: string): string {
  const members = said.length;
  if (count(said, "h") >= toMajority(members)) return "held";
  const state = count(said, "nN") > members - toMajority(members) ? "gone" : "waits";
  return isBusy(members, said) ? state : `${state}, paused`;
}

/** All results reported so far, and those still possible. */
function outcomes<T>(whole: readonly string[], outcome: (said: string) => T): Map<string, Set<T>> {
  const all = new Map<string, Set<T>>();
  for (const said of whole) {
    for (let length = 0; length <= said.length; length++) {
      const soFar = said.slice(0, length);
      const possible = all.get(soFar) ?? new Set();
      all.set(soFar, possible.add(outcome(said)));
    }
  }
  return all;
}

describe.each([3, 5])("a round of %i members", (members) => {
  test("is decided as soon as, and not before, no missing answer can change the result", () => {
    const wrong: string[] = [];
    for (const [said, possible] of outcomes(orders(Object.keys(ANSWERS), members), outcomeOf)) {
      const tally = heard(members, said);
      const [outcome = ""] = possible;
      if (tally.isDecided !== (possible.size === 1)) wrong.push(`${said}: ${tally.isDecided}, ${[...possible].join()}`);
      else if (tally.isDecided && (tally.paused !== undefined) !== outcome.endsWith("paused")) wrong.push(said);
    }
    expect(wrong).toEqual([]);
  });

  test("reports a pause only where the other members cannot refuse alone, whichever fails or is not asked", () => {
    const wrong: string[] = [];
    for (const [said, possible] of outcomes(orders(ALL, members), (whole) => isBusy(members, whole))) {
      const { isDecided, paused: told } = heard(members, said);
      // without a pause it is an ordinary round, which waits for nothing more
      const isOrdinary = heard(members, said.toLowerCase()).isDecided;
      const isOpen = hasPause(said) && possible.size > 1;
      if (isDecided !== (isOrdinary && !isOpen)) wrong.push(`${said}: ${isDecided}`);
      const isHeld = count(said, "h") >= toMajority(members);
      const isTold = hasPause(said) && !isHeld && !isBusy(members, said);
      if (isDecided && (told !== undefined) !== isTold) wrong.push(`${said}: ${told?.reason}`);
    }
    expect(wrong).toEqual([]);
  });
});
