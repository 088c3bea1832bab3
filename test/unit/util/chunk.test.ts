import { expect, test } from "vitest";
import { chunk } from "../../../src/util/chunk.ts";

test.each([
  [[], []],
  [["a", "b"], [["a", "b"]]],
  [
    ["a", "b", "c"],
    [["a", "b"], ["c"]],
  ],
])("%j in chunks of at most two is %j", (items, chunks) => {
  expect(chunk(items, 2)).toEqual(chunks);
});
