import { describe, expect, test } from "vitest";
import type { HolderGroup } from "../../../src/dashboard/model/holder-groups.ts";
import { filterGroups, groupByLabel, listLines } from "../../../src/dashboard/model/holder-groups.ts";
import { makeClaim, makeWaiter } from "./samples.ts";

const CLAIMS = [
  makeClaim("a", { label: "ana" }),
  makeClaim("b", { label: "bob" }),
  makeWaiter("a", { label: "bob" }),
  makeWaiter("c", { label: "__proto__" }),
];

function summarize(groups: readonly HolderGroup[]): unknown {
  return groups.map(({ label, held, waiting }) => [
    label,
    held.map(({ lock }) => lock.key),
    waiting.map(({ lock }) => lock.key),
  ]);
}

describe("claims by label", () => {
  test("what each label holds and waits for, the most claims first", () => {
    expect(summarize(groupByLabel(CLAIMS))).toEqual([
      ["bob", ["b"], ["a"]],
      ["__proto__", [], ["c"]],
      ["ana", ["a"], []],
    ]);
  });

  test("a claim over several keys has a line for each", () => {
    const claim = makeClaim("a", {
      locks: [
        { key: "a", mode: "exclusive" },
        { key: "b", mode: "shared" },
      ],
    });
    expect(listLines(groupByLabel([claim])).map(({ kind }) => kind)).toEqual(["group", "lock", "lock"]);
  });

  test("each line has an id of its own", () => {
    const ids = listLines(groupByLabel(CLAIMS)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("filtered", () => {
  test("by label: all of its claims", () => {
    expect(summarize(filterGroups(groupByLabel(CLAIMS), "BOB"))).toEqual([["bob", ["b"], ["a"]]]);
  });

  test("by key: only these claims", () => {
    expect(summarize(filterGroups(groupByLabel([...CLAIMS, makeClaim("key-of-ana")]), "key-of"))).toEqual([
      ["ana", ["key-of-ana"], []],
    ]);
  });
});
