import { expect, test } from "vitest";
import { memoize } from "../../../src/util/memoize.ts";

test("computes each result once, until there are too many", () => {
  const computed: string[] = [];
  const double = memoize((text) => {
    computed.push(text);
    return text + text;
  });
  expect([double("a"), double("b"), double("a")]).toEqual(["aa", "bb", "aa"]);
  expect(computed).toEqual(["a", "b"]);
  for (let number = 0; number < 998; number++) double(String(number));
  double("a");
  expect(computed).toHaveLength(1_000);
  double("one more");
  expect(double("a")).toBe("aa");
  expect(computed.slice(1_000)).toEqual(["one more", "a"]);
});

test("does not keep an error", () => {
  let calls = 0;
  const fail = memoize<string>(() => {
    calls++;
    throw new Error("no result");
  });
  expect(() => fail("a")).toThrow("no result");
  expect(() => fail("a")).toThrow("no result");
  expect(calls).toBe(2);
});
