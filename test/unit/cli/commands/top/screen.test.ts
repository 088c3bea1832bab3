import { readFileSync } from "node:fs";
import stringWidth from "string-width";
import { describe, expect, test } from "vitest";
import { formatReading, toJsonReading } from "../../../../../src/cli/commands/top/plain-output.ts";
import type { Size, StoreState } from "../../../../../src/cli/commands/top/screen.ts";
import { renderScreen } from "../../../../../src/cli/commands/top/screen.ts";
import type { ViewState } from "../../../../../src/cli/commands/top/view-state.ts";
import { INITIAL_VIEW } from "../../../../../src/cli/commands/top/view-state.ts";
import { escapeControl } from "../../../../../src/cli/output.ts";
import type { Snapshot } from "../../../../../src/listing/key-rows.ts";
import * as keyRows from "../../../../../src/listing/key-rows.ts";
import { toClaimInfo } from "../../../../../src/spi/claim-info.ts";
import type { ClaimView } from "../../../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../../../src/spi/driver.ts";
import { makeHolder, makeWaiter } from "../../claim-views.ts";

function createSnapshot(views: readonly ClaimView[], prefix: string, isComplete: boolean): Snapshot {
  return keyRows.createSnapshot(
    views.map((view) => toClaimInfo(view)),
    prefix,
    isComplete,
  );
}

const SIZE: Size = { columns: 80, lines: 12 };

function makeState(views: readonly ClaimView[], change: Partial<StoreState> = {}): StoreState {
  const snapshot = createSnapshot(views, change.prefix ?? "", true);
  const store = { name: "redis://locks:6379", prefix: "", maxClaims: 2_000 };
  return { ...store, snapshot, ageMs: 500, failure: null, intervalMs: 2_000, ...change };
}

function render(state: StoreState, view: Partial<ViewState> = {}, size: Size = SIZE, hasColors = false): string[] {
  return renderScreen(state, { ...INITIAL_VIEW, ...view }, size, hasColors);
}

const ESCAPE = "\u001b";
const COLUMN_MOVE = new RegExp(`${ESCAPE}\\[(\\d+)G`, "g");
const STYLE = new RegExp(`${ESCAPE}\\[\\d+m`);

/** The lines as a terminal shows them, that finds the same widths as we do. */
function show(...args: Parameters<typeof render>): string[] {
  return render(...args).map((line) => line.replace(COLUMN_MOVE, "").trimEnd());
}

const VIEWS = [makeHolder("invoice:1"), makeWaiter("invoice:1"), makeHolder("deploy", { ttlMs: "session" })];

describe("the screen", () => {
  test("header, figures, rows, keys: 80 columns", () => {
    expect(show(makeState(VIEWS))).toEqual([
      "holdfast top  redis://locks:6379                                      every 2 s",
      "2 held, 1 waiting, longest wait 5 s",
      "",
      "KEY                WAITERS↓  LONGEST   HELD   LEASE  HOLDER",
      "invoice:1                 1      5 s   90 s    20 s  ana@web-1 pid 4121 (node)",
      "deploy                    0            90 s session  ana@web-1 pid 4121 (node)",
      "",
      "",
      "",
      "",
      "",
      "q quit  s sort  / filter  ? help  r reverse  space pause               1-2 of 2",
    ]);
  });

  test("the guide shows it as it is", () => {
    const seconds = (count: number): number => count * 1_000;
    const makeKey = (key: string, label: string, heldMs: number, remainingMs: number): ClaimView =>
      makeHolder(key, { label, heldMs, answer: { state: "held", token: 7n, tokenCount: 1, remainingMs } });
    const views = [
      makeKey("invoice:4711", "ana@web-1 pid 4121 (node)", seconds(96), seconds(21)),
      makeKey("invoice:4712", "ana@web-2 pid 977 (node)", seconds(3), seconds(27)),
      makeKey("invoice:9", "bob@batch pid 310 (report)", seconds(720), seconds(24)),
      ...[41, 30, 12, 8, 1].map((age) => makeWaiter("invoice:4711", { ageMs: seconds(age) })),
      makeWaiter("invoice:4712", { ageMs: seconds(2) }),
    ];
    const state = makeState(views, { prefix: "invoice:", intervalMs: seconds(10) });
    const page = readFileSync("docs/guide/cli.md", "utf8");
    expect(page).toContain(`\n\`\`\`\n${show(state).slice(0, 7).join("\n")}\n\`\`\`\n`);
  });

  test("a narrow screen has fewer columns and keys, a wide one also the mode; too small a screen says so", () => {
    const narrow = show(makeState(VIEWS), {}, { columns: 40, lines: 8 });
    expect(narrow.slice(3, 5)).toEqual([
      "KEY            WAITERS↓  LONGEST   HELD",
      "invoice:1             1      5 s   90 s",
    ]);
    expect(narrow[7]).toBe("q quit  s sort  / filter       1-2 of 2");
    const permits = makeHolder("gpu", { locks: [{ key: "gpu", permits: 3, limit: 4 }] });
    expect(show(makeState([permits]), {}, { columns: 120, lines: 8 })[4]).toMatch(/^gpu .* 20 s {2}3\/4 +ana@web-1/);
    for (const size of [
      { columns: 39, lines: 24 },
      { columns: 200, lines: 7 },
    ])
      expect(show(makeState(VIEWS), {}, size).slice(0, 2)).toEqual(["the terminal is too small:", "40x8 at least"]);
    expect(render(makeState(VIEWS), {}, { columns: 1, lines: 1 })).toEqual(["…"]);
  });

  test("the rows from the offset on, as many as fit", () => {
    const views = Array.from({ length: 30 }, (_, index) => makeHolder(`k${index + 10}`));
    const lines = show(makeState(views), { order: "key", offset: 5 });
    expect(lines.slice(4, 11).map((line) => line.split(" ")[0])).toEqual([
      "k15",
      "k16",
      "k17",
      "k18",
      "k19",
      "k20",
      "k21",
    ]);
    expect(lines[11]).toMatch(/ 6-12 of 30$/);
    // a larger screen shows the last rows, and not an empty part
    expect(show(makeState(views), { order: "key", offset: 29 })[11]).toMatch(/ 24-30 of 30$/);
  });

  test("the sign of the order is at its column", () => {
    const titles = (view: Partial<ViewState>): string => show(makeState(VIEWS), view)[3] as string;
    expect(titles({ order: "key" })).toContain("KEY↑ ");
    expect(titles({ order: "key", isReversed: true })).toContain("KEY↓ ");
    expect(titles({ order: "held" })).toContain("  HELD↓");
    expect(titles({ order: "longestWait", isReversed: true })).toContain(" LONGEST↑");
  });

  test("states without rows: loading, no locks, no row with this text", () => {
    expect(show({ ...makeState([]), snapshot: null })).toMatchObject({
      1: "",
      4: "loading",
      11: expect.not.stringContaining("of"),
    });
    expect(show(makeState([]))).toMatchObject({ 1: "0 held, 0 waiting", 4: "no locks" });
    expect(show(makeState([], { prefix: "a\u0007" }))).toMatchObject({
      0: expect.stringContaining("redis://locks:6379  a\\u{7}*"),
      4: 'no locks on keys that begin with "a\\u{7}"',
    });
    const filtered = show(makeState(VIEWS), { filter: "zz" });
    expect(filtered).toMatchObject({ 4: 'no row contains "zz"', 11: "filter: zz  Escape clears it" });
  });

  test("the filter takes the place of the keys, its end is always visible", () => {
    const footer = (filter: string, columns: number): string =>
      show(makeState(VIEWS), { filter, isEditingFilter: true }, { columns, lines: 8 }).at(-1) as string;
    expect(footer("inv", 80)).toMatch(/^filter: inv_ {2}Enter keeps it, Escape clears it +1-1 of 1$/);
    expect(footer("invo", 40)).toMatch(/^filter: invo_ +1-1 of 1$/);
    const long = `${"x".repeat(100)}END`;
    expect(footer(long, 40)).toMatch(/^filter: x+…x*END_$/);
    expect(footer("\u202ea", 80)).toContain("filter: \\u{202e}a_");
  });

  test("the notice: a failure, a pause, a late list, an incomplete list", () => {
    const notice = (change: Partial<StoreState>, view: Partial<ViewState> = {}): string =>
      show(makeState(VIEWS, change), view)[2] as string;
    const failure = "redis://locks:6379 refused the connection";
    expect(notice({ failure, ageMs: 12_000 })).toBe("the store refused the connection; rows 12 s old, trying again");
    const refusal = `account ${"x".repeat(90)} has no rights`;
    expect(notice({ failure: refusal })).toMatch(/^account x+….*no rights; rows 500 ms old, trying again$/);
    expect(notice({ ageMs: 7_000 }, { isPaused: true })).toBe("paused; rows 7 s old");
    expect(notice({ ageMs: 4_100 })).toBe("waiting for the store; rows 4 s old");
    expect(notice({ ageMs: 19_000, intervalMs: 20_000 })).toBe("");
    const snapshot = createSnapshot(VIEWS, "", false);
    expect(notice({ snapshot })).toBe("showing the first 2,000 claims");
    expect(notice({ snapshot }, { isPaused: true })).toBe("paused; rows 500 ms old; showing the first 2,000 claims");
  });

  test("the help fits into 12 lines of 40 columns", () => {
    const lines = show(makeState(VIEWS), { isHelpShown: true }, { columns: 40, lines: 12 });
    expect(lines).toHaveLength(12);
    expect(lines[1]).toBe("q, Ctrl-C     leave");
    expect(lines[11]).toBe("any key       close this help");
    expect(lines.slice(1).join("\n")).not.toContain("…");
  });

  test("colours only where the terminal has them", () => {
    const lines = render(makeState(VIEWS), {}, SIZE, true);
    expect(lines[3]).toMatch(new RegExp(`^${ESCAPE}\\[7mKEY.*${ESCAPE}\\[27m$`));
    expect(lines[4]).toContain("\u001b[33m       1\u001b[39m");
    expect(render(makeState(VIEWS)).join("")).not.toMatch(STYLE);
  });

  test.each([40, 59, 60, 71, 72, 79, 80, 99, 100, 200])(
    "in %i columns no line reaches the last one, each column begins at its place, and no text is unsafe",
    (columns) => {
      const unsafe = "\u001b[2J\u202e\u0007\r\n\u200d";
      const views = [
        makeHolder("k".repeat(512), { label: "l".repeat(256) }),
        makeHolder("漢字".repeat(100), { label: "🔒".repeat(60) }),
        makeHolder(`${unsafe}`.repeat(9).replaceAll(" ", ""), { label: unsafe.repeat(9) }),
        makeHolder("👩‍👩‍👧é", { locks: [{ key: "👩‍👩‍👧é", permits: 1_000_000, limit: 3_000_000 }] }),
        makeHolder("many"),
        makeHolder("many", { heldMs: 9e12, locks: [{ key: "many", permits: 1, limit: ALL_PERMITS }] }),
        makeWaiter("many", { ageMs: 9e11 }),
      ];
      const state = makeState(views, { failure: unsafe.repeat(20), name: unsafe.repeat(20) });
      const lines = render(state, { filter: "" }, { columns, lines: 24 });
      expect(lines).toHaveLength(24);
      const moves = lines.slice(3, 9).map((line) => [...line.matchAll(COLUMN_MOVE)].map(([, column]) => column));
      expect(new Set(moves.filter(({ length }) => length > 0).map((list) => list.join()))).toHaveLength(1);
      for (const line of lines) {
        const text = line.replace(COLUMN_MOVE, "");
        expect(stringWidth(text)).toBeLessThan(columns);
        expect(escapeControl(text)).toBe(text);
        // each cell ends where the next one is placed
        for (const { index, 1: column } of line.matchAll(COLUMN_MOVE))
          expect(stringWidth(line.slice(0, index).replace(COLUMN_MOVE, ""))).toBe(Number(column) - 1);
      }
    },
  );
});

describe("without a screen", () => {
  const reading = { storeName: "redis://locks:6379", prefix: "", snapshot: createSnapshot(VIEWS, "", true) };
  const PIPE = { columns: null, hasColors: false };

  test("a table of the keys with most waiters first", () => {
    expect(formatReading(reading, PIPE)).toEqual([
      "redis://locks:6379: 2 held, 1 waiting, longest wait 5 s",
      "",
      "KEY         WAITERS   LONGEST    HELD    LEASE  MODE       HOLDER",
      "invoice:1         1       5 s    90 s     20 s  exclusive  ana@web-1 pid 4121 (node)",
      "deploy            0              90 s  session  exclusive  ana@web-1 pid 4121 (node)",
    ]);
    expect(formatReading({ ...reading, snapshot: createSnapshot([], "", true) }, PIPE)).toEqual([
      "redis://locks:6379: no locks",
    ]);
  });

  test("on a terminal it is cut to the columns", () => {
    const snapshot = createSnapshot([makeHolder("k".repeat(300), { label: "l".repeat(200) })], "", true);
    for (const line of formatReading({ ...reading, snapshot }, { columns: 80, hasColors: false }))
      expect(stringWidth(line)).toBeLessThanOrEqual(80);
  });

  test("one object for programs, with tags and without ids", () => {
    expect(toJsonReading(reading, new Date(0))).toMatchObject({
      store: "redis://locks:6379",
      prefix: "",
      at: "1970-01-01T00:00:00.000Z",
      held: 2,
      waiting: 1,
      longestWaitMs: 5_000,
      complete: true,
      rows: [{ key: "invoice:1", holders: [{ tag: "lrrx2sgngs" }], waiters: 1 }, { key: "deploy" }],
    });
  });
});
