import { expect, test } from "vitest";
import { decodePush } from "../../../src/drivers/reply-codec.ts";

const held = { state: "held", token: 17n, tokenCount: 16, remainingMs: 30_000 };

test.each([
  ["", null],
  ["one", { id: "one" }],
  ["one recalled", { id: "one", isRecall: true }],
  ["one recalled 0aa key  of  words\n", { id: "one", isRecall: true, bucketAndKey: "0aa key  of  words\n" }],
  ["one 17 16 30000", { id: "one", answer: held }],
  ["one 17 16 30000 r", { id: "one", answer: { ...held, recalled: true } }],
  ["one 17 16 30000 h 0aa  key", { id: "one", answer: held, bucketAndKey: "0aa  key" }],
  ["one 17 16 30000 r 0ak", { id: "one", answer: { ...held, recalled: true }, bucketAndKey: "0ak" }],
  [
    "one 17 16 30000 h,two,three 0ak",
    { id: "one", answer: { ...held, successors: ["two", "three"] }, bucketAndKey: "0ak" },
  ],
])("the push %j", (message, push) => {
  expect(decodePush(message)).toEqual(push);
});
