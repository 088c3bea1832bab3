import { describe, expect, test } from "vitest";
import type { KeyRow, Snapshot, SortOrder } from "../../../src/listing/key-rows.ts";
import * as keyRows from "../../../src/listing/key-rows.ts";
import { filterRows, sortRows } from "../../../src/listing/key-rows.ts";
import { toClaimInfo } from "../../../src/spi/claim-info.ts";
import type { ClaimView } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { makeHolder, makeWaiter } from "../cli/claim-views.ts";

function createSnapshot(views: readonly ClaimView[], prefix: string, isComplete: boolean): Snapshot {
  return keyRows.createSnapshot(
    views.map((view) => toClaimInfo(view)),
    prefix,
    isComplete,
  );
}

function makeRow(key: string, change: Partial<KeyRow> = {}): KeyRow {
  const held = { holders: [{ tag: "t", label: "ana" }], heldMs: 0, remainingMs: null };
  return { key, mode: "exclusive", ...held, waiters: 0, longestWaitMs: null, ...change };
}

describe("from claims to rows", () => {
  test("a row for each key: its holder, and how many wait for how long", () => {
    const views = [makeHolder("k"), makeWaiter("k"), makeWaiter("k", { ageMs: 9_000 })];
    expect(createSnapshot(views, "", true)).toEqual({
      figures: { held: 1, waiting: 2, longestWaitMs: 9_000 },
      rows: [
        {
          key: "k",
          mode: "exclusive",
          holders: [{ tag: "lrrx2sgngs", label: "ana@web-1 pid 4121 (node)" }],
          heldMs: 90_000,
          remainingMs: 20_000,
          waiters: 2,
          longestWaitMs: 9_000,
        },
      ],
      isComplete: true,
    });
  });

  test("a claim over several keys counts on each of them, and once in the figures; other keys are left out", () => {
    const { figures, rows } = createSnapshot([makeHolder("a/1 a/2 b"), makeWaiter("a/2 b")], "a/", false);
    expect(figures).toEqual({ held: 1, waiting: 1, longestWaitMs: 5_000 });
    expect(rows.map(({ key, waiters }) => [key, waiters])).toEqual([
      ["a/1", 0],
      ["a/2", 1],
    ]);
  });

  test("several holders: the longest time, the shortest lease, and the permits together", () => {
    const locks = [{ key: "gpu", permits: 2, limit: 8 }] as const;
    const answer = { state: "held", token: 8n, tokenCount: 1, remainingMs: 3_000 } as const;
    const views = [makeHolder("gpu", { locks }), makeHolder("gpu", { locks, answer, heldMs: 95_000 })];
    expect(createSnapshot(views, "", true).rows).toMatchObject([
      { mode: "semaphore", permits: 4, limit: 8, heldMs: 95_000, remainingMs: 3_000 },
    ]);
    const readers = [{ key: "config", permits: 1, limit: ALL_PERMITS }] as const;
    const [row] = createSnapshot([makeHolder("config", { locks: readers, ttlMs: "session" })], "", true).rows;
    expect(row).toMatchObject({ mode: "shared", remainingMs: null });
    expect(row).not.toHaveProperty("permits");
  });

  test("a key with waiters only has no holder: its store grants nothing at the moment", () => {
    const [row] = createSnapshot([makeWaiter("k")], "", true).rows;
    expect(row).toMatchObject({ mode: "exclusive", holders: [], heldMs: null, remainingMs: null, waiters: 1 });
  });

  test("the time since the grant is the age of the claim if the store does not know more", () => {
    const { heldMs: _, ...view } = makeHolder("k");
    expect(createSnapshot([view], "", true).rows[0]?.heldMs).toBe(100_000);
  });
});

test.each<[SortOrder, string]>([
  ["waiters", "c a b d"],
  ["longestWait", "a c b d"],
  ["held", "b a d c"],
  ["key", "a b c d"],
])("sorted by %s: %s; reversed, rows with the same figure stay in the order of their keys", (order, expected) => {
  const rows = [
    makeRow("d", { heldMs: 5 }),
    makeRow("c", { waiters: 3, longestWaitMs: 10, heldMs: null }),
    makeRow("b", { waiters: 1, longestWaitMs: 0, heldMs: 9 }),
    makeRow("a", { waiters: 1, longestWaitMs: 50, heldMs: 7 }),
  ];
  const keysOf = (isReversed: boolean): string =>
    sortRows(rows, order, isReversed)
      .map(({ key }) => key)
      .join(" ");
  expect(keysOf(false)).toBe(expected);
  const reversed = expected.split(" ").reverse().join(" ");
  expect(keysOf(true)).toBe(order === "waiters" ? "d a b c" : reversed);
});

test("the filter finds a text in keys and in labels of holders, in any case", () => {
  const rows = [makeRow("Invoice:1"), makeRow("deploy", { holders: [{ tag: "t", label: "bob@INV-2" }] }), makeRow("x")];
  const find = (text: string): string[] => filterRows(rows, text).map(({ key }) => key);
  expect(find("inv")).toEqual(["Invoice:1", "deploy"]);
  expect(find("")).toEqual(["Invoice:1", "deploy", "x"]);
  expect(find("nothing")).toEqual([]);
});
