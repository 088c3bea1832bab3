import { expect, test } from "vitest";
import { makeWitness } from "../../src/client/witness.ts";
import { exclusive, together } from "../../src/core/holds.ts";

const [a, b] = [exclusive("a"), exclusive("b")];

test("the floor lies above the highest token seen on any of the keys", () => {
  const witness = makeWitness(true);
  witness.saw(a, 5n);
  witness.saw(b, 9n);
  expect(witness.floor(a)).toBe(6n);
  expect(witness.floor(together([a, b])!)).toBe(10n);
  expect(witness.floor(exclusive("c"))).toBe(0n);
});

test("a lower token seen later moves no floor", () => {
  const witness = makeWitness(true);
  witness.saw(a, 5n);
  witness.saw(a, 3n);
  expect(witness.floor(a)).toBe(6n);
});

test("the last 10,000 keys are remembered, and one not seen for 20,000 others is not", () => {
  const witness = makeWitness(true);
  witness.saw(a, 5n);
  for (let index = 0; index < 9_999; index++) witness.saw(exclusive(`other:${index}`), 7n);
  expect(witness.floor(a)).toBe(6n);
  witness.saw(a, 8n);
  for (let index = 0; index < 9_999; index++) witness.saw(exclusive(`further:${index}`), 7n);
  expect(witness.floor(a)).toBe(9n);
  for (let index = 0; index < 20_000; index++) witness.saw(exclusive(`last:${index}`), 7n);
  expect(witness.floor(a)).toBe(0n);
});

test("where the store dies with the process nothing is remembered", () => {
  const witness = makeWitness(false);
  witness.saw(a, 5n);
  expect(witness.floor(a)).toBe(0n);
});
