// docs/evidence.md: its figures are those of bench/results, its quotations are in the pages that it names, and no row names a rival.

import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { expect, test } from "vitest";
import { crashGoalOf, grantGoalOf } from "../../../bench/evidence/goals.ts";
import { fillPage, renderBlocks } from "../../../bench/evidence/page.ts";
import { readTortureReports, rowsOf, sumRows } from "../../../bench/evidence/results.ts";
import { renderRivals } from "../../../bench/evidence/rivals.ts";
import { renderAnswer, renderCrashes, renderOthers, renderTotals } from "../../../bench/evidence/stores.ts";
import { NPM_PACKAGES } from "../../../bench/harness/versions.ts";
import { parsePlan } from "../../../bench/torture/plan.ts";
import type { RunResult, TortureReport, TortureRow } from "../../../bench/torture/report.ts";
import { formatReport } from "../../../bench/torture/report.ts";
import { HOLDFAST_CLASS, selectSubjects } from "../../../bench/torture/subjects.ts";
import { STORE_NAMES } from "../../../src/torture/stores/stores.ts";

const PAGE = "docs/evidence.md";

const FIGURES: RunResult["figures"] = {
  ...{
    requests: 10,
    holds: 8,
    storeGrants: null,
    sections: 9,
    contended: 5,
    effectiveFaults: 3,
    faults: { kill: 2, pause: 1 },
  },
  ...{ doubleHolds: 0, doubleHoldMs: 0, tokenRegressions: 0, grantsWithoutLease: 0, inversions: 0, losses: 1 },
  ...{ staleWritesRefused: 2, staleWritesAccepted: 0, staleWritesUnfenced: 2, latestNoticeMs: 12.5 },
  ...{ longestWaitMs: 2_000, medianWaitMs: 10, longestIdleMs: 5, afterCrashMs: [40, 60] },
  ...{ bystanderMedianMs: 1, bystanderLongestMs: 2, leftovers: 0 },
};

function createRow(
  rest: Partial<RunResult & TortureRow> = {},
  figures: Partial<RunResult["figures"]> = {},
): TortureRow {
  return {
    ...{ class: HOLDFAST_CLASS, store: "redis", seed: 1, command: "holdfast torture --seed 1", storeName: "Redis 7" },
    ...{ verdict: "ok", reasons: [], notTested: {}, ttlMs: 1_000, workers: 5, seconds: 30, faults: ["kill", "pause"] },
    ...{ violations: {}, overlaps: {}, examples: [], figures: { ...FIGURES, ...figures } },
    ...rest,
  };
}

const FAILED: TortureRow = {
  ...{ class: HOLDFAST_CLASS, store: "redis", seed: 2, command: "holdfast torture --seed 2", error: "it hung" },
};

function createReport(...rows: readonly TortureRow[]): TortureReport {
  const environment = { commit: "c0ffee", changed: false, date: "2026-01-01T00:00:00.000Z" };
  return { ...environment, machine: "a machine", node: "v20.0.0", rows };
}

const sumOf = (...rows: readonly TortureRow[]): ReturnType<typeof sumRows> => sumRows(rowsOf([createReport(...rows)]));

test("the page is made of the results (`npm run bench -- --page`)", () => {
  const page = readFileSync(PAGE, "utf8");
  expect(fillPage(page, renderBlocks(readTortureReports()))).toBe(page);
});

test("what the page quotes is in the page that it names", () => {
  const unwrap = (text: string): string => text.replace(/\s+/g, " ");
  const quotations = readFileSync(PAGE, "utf8")
    .split("\n\n")
    .filter((paragraph) => paragraph.startsWith("> "))
    .map((paragraph) => unwrap(paragraph.replace(/^> /gm, "")));
  expect(quotations.length).toBeGreaterThan(4);
  for (const quotation of quotations) {
    const [, words = "", file = ""] = /^(.+) \(\[[^\]]+\]\(([^)#]+)[^)]*\)\)$/.exec(quotation) ?? [];
    expect(unwrap(readFileSync(posix.join("docs", file), "utf8"))).toContain(words);
  }
});

test("no row names a rival: its maintainers have not been asked", () => {
  const adapters = selectSubjects([]).flatMap(({ adapter, isByHand }) => (isByHand ? [] : (adapter ?? [])));
  const names = [...adapters, ...Object.keys(NPM_PACKAGES)];
  const rivals = rowsOf(readTortureReports()).filter((row) => row.class !== HOLDFAST_CLASS);
  for (const row of rivals) for (const name of names) expect(JSON.stringify(row)).not.toContain(name);
});

test("a page is filled at its marks, and lacks none", () => {
  const page = "a\n<!-- made: one -->\nold\n<!-- end -->\nb";
  expect(fillPage(page, { one: ["new"] })).toBe("a\n<!-- made: one -->\nnew\n<!-- end -->\nb");
  expect(() => fillPage(page, { one: [], two: [] })).toThrow("no mark for two");
  expect(() => fillPage(page, {})).toThrow('no block "one"');
});

test("rows are summed; a failed one counts as a run, and only kills alone say how soon the next one holds", () => {
  const totals = sumOf(
    createRow(),
    createRow(
      { faults: ["kill"], storeName: "Redis 8" },
      { afterCrashMs: [90, 20], faults: { kill: 4 }, leftovers: null },
    ),
    createRow({ verdict: "violated" }, { doubleHolds: 2, doubleHoldMs: 7, leftovers: 3, latestNoticeMs: 80 }),
    FAILED,
  );
  expect(totals).toMatchObject({
    ...{ runs: 4, verdicts: { ok: 2, violated: 1, unknown: 0, failed: 1 }, seconds: 90, holds: 24, grants: 24 },
    ...{ doubleHolds: 2, doubleHoldMs: 7, leftovers: 3, latestNoticeMs: 80, afterCrashMs: [20, 90] },
    ...{ faults: { kill: 8, pause: 2 }, storeNames: ["Redis 7", "Redis 8"], days: ["2026-01-01"], commits: ["c0ffee"] },
  });
  expect(sumOf(createRow({}, { leftovers: null })).leftovers).toBeNull();
});

test("grants are those of the store, where they can be told apart", () => {
  expect(sumOf(createRow(), createRow({}, { storeGrants: 6 })).grants).toBe(14);
});

test("a run that is not ok is in the list, and in the figures of its store", () => {
  const violated = createRow(
    { verdict: "violated", violations: { exclusion: 2 } },
    { doubleHolds: 2, doubleHoldMs: 7 },
  );
  const rows = rowsOf([createReport(createRow(), violated, FAILED)]);
  expect(renderAnswer(rows).at(-1)).toMatch(
    /^\| \*\*redis\*\* \(Redis 7\) \| 1 of 3 \| 6 \| 16 of 100,000 \| 18 \| 2 \(7 ms\) \|/,
  );
  expect(renderOthers(rows).slice(2)).toEqual([
    "| 2026-01-01, `c0ffee` | `holdfast torture --seed 1` | violated; exclusion 2 |",
    "| 2026-01-01, `c0ffee` | `holdfast torture --seed 2` | no result: it hung |",
  ]);
  expect(renderTotals(rows).join()).toContain("Verdicts: 1 ok, **1 violated**, 1 without a result.");
  expect(renderOthers(rowsOf([createReport(createRow())]))).toEqual(["None."]);
});

test("a goal that was missed is bold", () => {
  const [slow, quick] = [[1_300], [1_200]].map((afterCrashMs) =>
    renderCrashes(rowsOf([createReport(createRow({ faults: ["kill"] }, { afterCrashMs, latestNoticeMs: 150 }))])).at(
      -1,
    ),
  );
  expect(slow).toContain("| **1.3 s** (1) | lease + 250 ms: 1.25 s | 1 | **150 ms** (100 ms) |");
  expect(quick).toContain("| 1.2 s (1) |");
});

test("every store that torture starts has its goals", () => {
  expect(STORE_NAMES.map((store) => [store, crashGoalOf(store, 1_000).ms, grantGoalOf(store)])).toEqual(
    expect.arrayContaining([
      ["server", 100, 100_000],
      ["redis", 1_250, 100_000],
      ["etcd", 2_500, 100_000],
      ["zookeeper", 2_500, 100_000],
      ["zookeeper-3", 4_500, 100_000],
      ["nats", 3_000, 5_000],
    ]),
  );
});

test("a rival is compared with the runs of Holdfast in the same file and on the same store", () => {
  const rival = createRow(
    { class: "own lock", verdict: "violated", violations: { exclusion: 3 } },
    { doubleHolds: 3, doubleHoldMs: 900, holds: 50 },
  );
  const compared = createReport(createRow(), rival, createRow({ store: "etcd" }));
  const table = renderRivals([createReport(createRow({}, { holds: 1_000 })), compared]);
  expect(table.slice(2, 4)).toEqual([
    "| **Holdfast** | redis | 1 of 1 | 3 | 8 | 0 | 0 | 2 | 1 | – |",
    "| own lock | redis | 0 of 1 | 3 | 50 | 3 (900 ms) | 0 | 2 | 1 | exclusion 3 |",
  ]);
  expect(table).toHaveLength(6);
});

test("a report is JSON with a line for each row", () => {
  const report = createReport(createRow({}, { latestNoticeMs: 12.3456 }), FAILED);
  const text = formatReport(report);
  expect(JSON.parse(text)).toEqual(createReport(createRow({}, { latestNoticeMs: 12.3 }), FAILED));
  expect(text.split("\n").filter((line) => line.startsWith('{"class"'))).toHaveLength(2);
});

test("names select stores, and rivals beside Holdfast on their stores", () => {
  const select = (...names: readonly string[]): string[] =>
    selectSubjects(names).map(({ store, adapter }) => `${store} ${adapter ?? "-"}`);
  expect(select("etcd", "set-nx-px")).toEqual(["redis -", "redis set-nx-px", "etcd -"]);
  expect(select("holdfast")).toEqual([...STORE_NAMES, "dynamodb", "s3"].map((store) => `${store} -`));
  expect(select().length).toBeGreaterThan(select("holdfast").length);
  expect(() => select("redlock")).toThrow("no store or rival redlock; there are holdfast, server, ");
});

test("seeds are a number or a range", () => {
  expect(parsePlan({ seeds: "4-6", time: "1m" }, ["redis"])).toMatchObject({
    seeds: [4, 5, 6],
    time: "1m",
    ms: 60_000,
  });
  expect(parsePlan({ seeds: "7" }, ["redis"]).seeds).toEqual([7]);
  for (const seeds of ["", "a", "3-1", "1-2-3"]) expect(() => parsePlan({ seeds }, ["redis"])).toThrow("--seeds takes");
});
