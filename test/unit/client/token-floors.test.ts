import { expect, test } from "vitest";
import { exclusive, mergeSpecs } from "../../../src/client/lock-spec.ts";
import { createTokenFloors } from "../../../src/client/token-floors.ts";

const [a, b] = [exclusive("a"), exclusive("b")];

test("the floor lies above the highest token seen on any of the keys", () => {
  const tokenFloors = createTokenFloors(true);
  tokenFloors.record(a, 5n);
  tokenFloors.record(b, 9n);
  expect(tokenFloors.floor(a)).toBe(6n);
  expect(tokenFloors.floor(mergeSpecs([a, b])!)).toBe(10n);
  expect(tokenFloors.floor(exclusive("c"))).toBe(0n);
});

test("a lower token seen later does not move the floor", () => {
  const tokenFloors = createTokenFloors(true);
  tokenFloors.record(a, 5n);
  tokenFloors.record(a, 3n);
  expect(tokenFloors.floor(a)).toBe(6n);
});

test("the last 10,000 keys are remembered, and a key not seen for 20,000 others is not", () => {
  const tokenFloors = createTokenFloors(true);
  tokenFloors.record(a, 5n);
  for (let index = 0; index < 9_999; index++) tokenFloors.record(exclusive(`other:${index}`), 7n);
  expect(tokenFloors.floor(a)).toBe(6n);
  tokenFloors.record(a, 8n);
  for (let index = 0; index < 9_999; index++) tokenFloors.record(exclusive(`further:${index}`), 7n);
  expect(tokenFloors.floor(a)).toBe(9n);
  for (let index = 0; index < 20_000; index++) tokenFloors.record(exclusive(`last:${index}`), 7n);
  expect(tokenFloors.floor(a)).toBe(0n);
});

test("floors are not remembered where the store ends with the process", () => {
  const tokenFloors = createTokenFloors(false);
  tokenFloors.record(a, 5n);
  expect(tokenFloors.floor(a)).toBe(0n);
});
