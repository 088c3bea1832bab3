import { expect, test } from "vitest";
import {
  expandNames,
  prefixRule,
  quoteIdentifier,
  toBucket,
  toName,
  toOneBucket,
  toUpperBound,
} from "../../../../src/drivers/sql/schema.ts";

test("the bucket of a key is part of the layout: these never change", () => {
  const keys = ["", "a", "invoice-42", "\u00e4", "a".repeat(512)];
  expect(keys.map(toBucket)).toEqual([0, 135, 715, 617, 264]);
});

test("buckets are about equally full", () => {
  const counts = new Array<number>(1024).fill(0);
  for (let index = 0; index < 102_400; index++) counts[toBucket(`key-${index}`)]!++;
  expect(Math.min(...counts)).toBeGreaterThan(50);
  expect(Math.max(...counts)).toBeLessThan(150);
});

test("sorted rows have one bucket if the first and the last have it", () => {
  const rowsOf = (...buckets: readonly number[]) => buckets.map((bucket) => ({ bucket }));
  const found = [rowsOf(3), rowsOf(3, 3, 3), rowsOf(0, 0), rowsOf(2, 3), rowsOf(2, 2, 3), rowsOf()].map(toOneBucket);
  expect(found).toEqual([3, 3, 0, null, null, null]);
});

test("names begin with the prefix and have the layout's number, but for the table that contains it", () => {
  expect(toName("claims")).toBe("holdfast_1_claims");
  expect(toName("layout", "mine")).toBe("mine_layout");
});

test("words in braces become names; other braces stay", () => {
  const text = "select * from {claims}, {layout} where a = '{}' and b ~ 'x{2}' and c = '{A}'";
  expect(expandNames(text, "p", (name, word) => `<${name} ${word}>`)).toBe(
    "select * from <p_1_claims claims>, <p_layout layout> where a = '{}' and b ~ 'x{2}' and c = '{A}'",
  );
  expect(quoteIdentifier('a"b')).toBe('"a""b"');
});

test.each(["", "A", "1a", "a-b", "a b", 'a"', "\u00e4", "a".repeat(33), 7, null])(
  "the prefix %j is refused",
  (prefix) => {
    expect(prefixRule(prefix)).toMatch(/^1 to 32 lower-case letters/);
  },
);

test.each(["a", "holdfast", "a_1", "a".repeat(32)])("the prefix %j is accepted", (prefix) => {
  expect(prefixRule(prefix)).toBeNull();
});

test.each([
  ["", null],
  ["a", "b"],
  ["ab", "ac"],
  ["a\u{10ffff}", "b"],
  ["\u{10ffff}\u{10ffff}", null],
  ["\ud7ff", "\ue000"],
  ["\uffff", "\u{10000}"],
])("all texts that begin with %j are below %j", (prefix, bound) => {
  expect(toUpperBound(prefix)).toBe(bound);
});
