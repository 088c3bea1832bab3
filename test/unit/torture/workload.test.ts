import { describe, expect, test } from "vitest";
import { createRandom } from "../../../src/testing/random.ts";
import { OPERATION_KINDS } from "../../../src/torture/history.ts";
import type { KeySet } from "../../../src/torture/workload.ts";
import { createOperationChooser } from "../../../src/torture/workload.ts";

const TTL_MS = 1_000;
const KEY_SETS: readonly KeySet[] = ["long", "brief"];

describe.each(KEY_SETS)("%s keys", (keySet) => {
  const chooser = createOperationChooser(createRandom(1), TTL_MS);
  const operations = Array.from({ length: 1_000 }, () => chooser.next(keySet));

  test("are locked in every way", () => {
    expect(new Set(operations.map(({ kind }) => kind))).toEqual(new Set(OPERATION_KINDS));
  });

  test("are several where several are asked for, and never one twice", () => {
    for (const { kind, keys } of operations) {
      expect(new Set(keys).size).toBe(keys.length);
      expect(keys.length > 1).toBe(kind === "several");
    }
  });
});

test("no key is in both sets", () => {
  const chooser = createOperationChooser(createRandom(1), TTL_MS);
  const [long, brief] = KEY_SETS.map(
    (keySet) => new Set(Array.from({ length: 1_000 }, () => chooser.next(keySet).keys).flat()),
  );
  expect([...(long as Set<string>)].filter((key) => brief?.has(key))).toEqual([]);
});

test("a holder works for some milliseconds, and less on brief keys", () => {
  const chooser = createOperationChooser(createRandom(1), TTL_MS);
  const longest = (keySet: KeySet): number => Math.max(...Array.from({ length: 1_000 }, () => chooser.workMs(keySet)));
  expect([longest("brief"), longest("long")]).toEqual([3, 9]);
});

test("an excluded kind is chosen no more", () => {
  const chooser = createOperationChooser(createRandom(1), TTL_MS);
  chooser.exclude("leader");
  const kinds = Array.from({ length: 1_000 }, () => chooser.next("brief").kind);
  expect(kinds).not.toContain("leader");
});
