import stringWidth from "string-width";
import { describe, expect, test } from "vitest";
import { formatEventLine, formatHolder, formatTime, renderEventTable } from "../../../src/cli/commands/event-format.ts";
import { countAhead, formatClaims } from "../../../src/cli/commands/list.ts";
import { formatReport } from "../../../src/cli/commands/show.ts";
import { escapeControl } from "../../../src/cli/output.ts";
import {
  colorize,
  detectTerminal,
  padText,
  truncate,
  truncateLabel,
  truncateMiddle,
} from "../../../src/cli/terminal-table.ts";
import type { ServerEvent } from "../../../src/protocol/admin-frames.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { makeHolder, makeWaiter } from "./claim-views.ts";

const PIPE = { columns: null, hasColors: false };
const NOON = new Date(2026, 10, 21, 12, 0, 0).getTime();

function makeTerminal(columns: number, hasColors = false): { readonly columns: number; readonly hasColors: boolean } {
  return { columns, hasColors };
}

function makeEvent(kind: string, change: Partial<ServerEvent> = {}): ServerEvent {
  const claim = { keys: ["k"], tag: "lrrx2sgngs", label: "ana", account: "", token: 1_800_000_000_000_000n };
  return { seq: 1, at: NOON, kind, ...claim, ...change };
}

describe("the terminal", () => {
  test("a pipe is not cut and has no colours; a terminal has, unless NO_COLOR or TERM=dumb", () => {
    expect(detectTerminal({}, {})).toEqual(PIPE);
    expect(detectTerminal({ isTTY: true, columns: 100 }, { TERM: "xterm" })).toEqual(makeTerminal(100, true));
    expect(detectTerminal({ isTTY: true, columns: 100 }, { NO_COLOR: "1" })).toEqual(makeTerminal(100));
    expect(detectTerminal({ isTTY: true, columns: 5 }, { TERM: "dumb" })).toEqual(makeTerminal(40));
    expect(colorize("x", "red", PIPE)).toBe("x");
    expect(colorize("x", "red", makeTerminal(80, true))).toBe("\u001b[31mx\u001b[39m");
  });

  test("wide characters take two columns, marks none", () => {
    expect([stringWidth("abc"), stringWidth("漢字"), stringWidth("e\u0301"), stringWidth("🔒")]).toEqual([3, 4, 1, 2]);
    expect([padText("漢", 4), padText("7", 3, "left")]).toEqual(["漢  ", "  7"]);
  });

  test("text that does not fit is cut to the column, at the end or in the middle", () => {
    expect([truncate("abcdef", 6), truncate("abcdef", 5), truncate("漢字漢字", 6)]).toEqual([
      "abcdef",
      "abcd…",
      "漢字…",
    ]);
    // a character of several code points is never cut in two
    expect([truncate("👍🏽👍🏽👍🏽", 5), truncateMiddle("👍🏽👍🏽👍🏽👍🏽", 7)]).toEqual([
      "👍🏽👍🏽…",
      "👍🏽👍🏽…👍🏽",
    ]);
    expect([truncateMiddle("abcdefghij", 10), truncateMiddle("abcdefghij", 7)]).toEqual(["abcdefghij", "abcd…ij"]);
    for (let columns = 1; columns < 20; columns++) {
      for (const text of ["x".repeat(40), "漢".repeat(20), "a漢".repeat(10)]) {
        expect(stringWidth(truncateMiddle(text, columns))).toBeLessThanOrEqual(columns);
      }
    }
  });
});

describe("ls", () => {
  const views = [
    makeHolder("invoice:1"),
    makeWaiter("invoice:1", { ttlMs: "session" }),
    makeWaiter("invoice:1 other"),
    makeHolder("other", { locks: [{ key: "other", permits: 1, limit: ALL_PERMITS }] }),
    makeWaiter("other", { locks: [{ key: "other", permits: 2, limit: 4 }] }),
  ];

  test("one row for each claim: state, since, remaining lease, number of entries ahead", () => {
    expect(formatClaims(views, PIPE)).toEqual([
      "KEY               STATE         SINCE    LEASE  AHEAD  TOKEN             HOLDER",
      "invoice:1         held           90 s     20 s         1800000000000000  ana@web-1 pid 4121 (node)",
      "invoice:1         waiting         5 s  session      1                    bob@web-2 pid 7 (sh)",
      "invoice:1, other  waiting         5 s     25 s      2                    bob@web-2 pid 7 (sh)",
      "other             held shared    90 s     20 s         1800000000000000  ana@web-1 pid 4121 (node)",
      "other             waiting 2/4     5 s     25 s      2                    bob@web-2 pid 7 (sh)",
    ]);
    expect(countAhead(views)).toEqual([0, 1, 2, 1, 2]);
    expect(formatClaims([], PIPE)).toEqual([]);
  });

  test("columns keep their place from one refresh to the next", () => {
    const [now] = formatClaims([makeHolder("k", { heldMs: 999 })], PIPE);
    const [later] = formatClaims([makeHolder("k", { heldMs: 7_000_000, ttlMs: "session" })], PIPE);
    expect(later).toBe(now);
  });

  test.each([40, 60, 80, 109, 110, 200])(
    "in %i columns no line is longer, whatever the keys and labels are",
    (columns) => {
      const rows = [
        makeHolder("k".repeat(512), { label: "l".repeat(256) }),
        makeHolder("漢字".repeat(100)),
        ...views,
        ...Array.from({ length: 500 }, (_, index) => makeWaiter(`many/${index}`)),
      ];
      const lines = formatClaims(rows, makeTerminal(columns));
      expect(lines).toHaveLength(rows.length + 1);
      // below that the columns that are never cut need more
      const maxWidth = Math.max(columns, 76);
      for (const line of lines) expect(stringWidth(line)).toBeLessThanOrEqual(maxWidth);
    },
  );

  test.each([80, 100])(
    "in %i columns the pid of a holder is complete, whatever the key, host and program are",
    (columns) => {
      const hosts = ["web-1", "ip-10-0-12-34.eu-central-1.compute.internal", "漢字".repeat(40)];
      const rows = hosts.flatMap((host) =>
        ["sh", "(".repeat(200)].map((program) =>
          makeHolder("a-rather-long-name-of-a-key/".repeat(9), { label: `root@${host} pid 4194304 (${program})` }),
        ),
      );
      for (const line of formatClaims(rows, makeTerminal(columns)).slice(1)) expect(line).toContain(" pid 4194304");
      for (let width = 12; width < 60; width++) {
        for (const { label } of rows) {
          expect(truncateLabel(label, width)).toContain("pid 4194304");
          expect(stringWidth(truncateLabel(label, width))).toBeLessThanOrEqual(width);
        }
      }
      expect(truncateLabel("root@vm pid 29511 (sleep)", 24)).toBe("root@vm pid 29511 (slee…");
      expect(truncateLabel("root@web-1.example.com pid 29511 (sleep)", 28)).toBe("root@w…com pid 29511 (sleep)");
      expect(truncateLabel("no process but a rather long text", 12)).toBe(
        truncateMiddle("no process but a rather long text", 12),
      );
    },
  );

  test("text from other clients cannot move the cursor, begin a line or change the direction", () => {
    const text = formatClaims([makeHolder("k", { label: "a\u001b[2Jb\r\nc\u202ed" })], PIPE).join("\n");
    expect(text).toContain("a\\u{1b}[2Jb\\u{d}\\u{a}c\\u{202e}d");
    expect(escapeControl(text.replaceAll("\n", ""))).toBe(text.replaceAll("\n", ""));
  });
});

describe("show", () => {
  test("the holder, since when, its remaining lease, the queue, and the last events", () => {
    const queue = [
      makeHolder("k", { answer: { state: "held", token: 7n, tokenCount: 64, remainingMs: 20_000 } }),
      makeWaiter("a k"),
    ];
    const other = { tag: "zzzzzzzzzz", operator: "ops", reason: "stuck\u0007" };
    const events = [makeEvent("waiting"), makeEvent("granted"), makeEvent("revoked", other)];
    expect(formatReport({ key: "k", queue, events, maxEvents: 2 }, PIPE)).toEqual([
      "k",
      "held by ana@web-1 pid 4121 (node) for 90 s, 1 waiter",
      "tokens 7 to 70 are reserved for hand-offs within the holder's process",
      "",
      "   #  STATE     SINCE    LEASE  TOKEN             TAG         HOLDER",
      "   1  held       90 s     20 s  7                 lrrx2sgngs  ana@web-1 pid 4121 (node)",
      "   2  waiting     5 s     25 s                    lrrx2sgngs  bob@web-2 pid 7 (sh) (and 1 more key)",
      "",
      "last events",
      expect.stringMatching(/^ {2}TIME +EVENT +TOKEN +TAG +WHO$/),
      expect.stringMatching(/12:00:00 {2}granted {4}1800000000000000 {2}lrrx2sgngs {2}ana$/),
      expect.stringMatching(/12:00:00 {2}revoked {4}1800000000000000 {2}zzzzzzzzzz {2}ana \(by ops: stuck\\u\{7\}\)$/),
    ]);
  });

  test.each([
    ["revoked", "revoked"],
    ["maxHoldExceeded", "maxHold"],
  ])("a holder that was %s and has not released yet is not shown as a holder", (kind, loss) => {
    const events = [makeEvent(kind), ...Array.from({ length: 20 }, () => makeEvent("waiting", { tag: "zzzzzzzzzz" }))];
    const lines = formatReport({ key: "k", queue: [makeHolder("k"), makeWaiter("k")], events, maxEvents: 0 }, PIPE);
    expect(lines[1]).toBe(`held by ana@web-1 pid 4121 (node) for 90 s (${loss}, but not released yet), 1 waiter`);
    expect(lines[4]).toMatch(new RegExp(`^ {3}1 {2}${loss} +90 s`));
    expect(lines[5]).toMatch(/^ {3}2 {2}waiting /);
    expect(lines.at(-1)).toBe("events: none recorded");
  });

  test("a free key, several holders, and a store without events", () => {
    expect(formatReport({ key: "k", queue: [], events: [] }, PIPE)).toEqual([
      "k",
      "free, no waiters",
      "",
      "events: none recorded",
    ]);
    const sharedReport = formatReport(
      { key: "k", queue: [makeHolder("k"), makeHolder("k")], events: "memory: keeps no events" },
      PIPE,
    );
    expect(sharedReport[1]).toBe("held by 2 holders, no waiters");
    expect(sharedReport.at(-1)).toBe("events: memory: keeps no events");
    expect(formatReport({ key: "k", queue: [makeWaiter("k")], events: [] }, PIPE)[1]).toBe("not held, 1 waiter");
  });

  test.each([80, 200])("in %i columns no line is longer", (columns) => {
    const long = { label: "l".repeat(256) };
    const queue = [makeHolder("k".repeat(512), long), makeWaiter("k".repeat(512), long)];
    const events = [makeEvent("reclaimed", { ...long, at: NOON - 90_000_000 })];
    const lines = formatReport({ key: "k".repeat(512), queue, events }, makeTerminal(columns)).filter(
      (text) => !text.startsWith("held by"),
    );
    for (const text of lines) expect(stringWidth(text)).toBeLessThanOrEqual(columns);
  });
});

describe("events", () => {
  test("a line for each: time, event, key, client", () => {
    expect(formatEventLine(makeEvent("granted"), PIPE, NOON)).toBe(
      "12:00:00  granted          k                   token 1800000000000000  ana",
    );
    const waits = makeEvent("waiting", { keys: ["a", "b"], account: "team-a" });
    const { token: _, ...place } = waits;
    expect(formatEventLine(place, PIPE, NOON)).toBe("12:00:00  waiting          a, b                ana [team-a]");
    expect(formatEventLine(makeEvent("expired"), makeTerminal(200, true), NOON)).toContain(
      "\u001b[31mexpired        \u001b[39m",
    );
  });

  test("an operator's action shows who and why", () => {
    expect(formatHolder(makeEvent("revoked", { operator: "ops", reason: "stuck" }))).toBe("ana (by ops: stuck)");
    expect(formatHolder(makeEvent("removed", { operator: "", reason: "" }))).toBe("ana (by an operator)");
  });

  test("the day is shown when it is not today", () => {
    expect(formatTime(NOON, NOON + 1_000)).toBe("12:00:00");
    expect(formatTime(NOON, NOON + 86_400_000)).toBe("2026-11-21 12:00:00");
  });

  test.each([60, 80, 120, 200])("in %i columns no line is longer", (columns) => {
    const long = makeEvent("reclaimed", { keys: ["k".repeat(512), "漢".repeat(90)], label: "l".repeat(256) });
    for (const serverEvent of [
      long,
      makeEvent("granted", { label: "l".repeat(256) }),
      makeEvent("withdrawn", { keys: ["k".repeat(30)] }),
    ]) {
      expect(stringWidth(formatEventLine(serverEvent, makeTerminal(columns), NOON))).toBeLessThanOrEqual(columns);
    }
    for (const line of renderEventTable([long], makeTerminal(columns), columns > 100, NOON)) {
      expect(stringWidth(line)).toBeLessThanOrEqual(columns);
    }
  });
});
