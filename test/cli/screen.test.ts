import { describe, expect, test } from "vitest";
import { eventLine, eventTable, timeOf, whoOf } from "../../src/cli/happened.ts";
import { aheadOf, listing } from "../../src/cli/ls.ts";
import { visible } from "../../src/cli/output.ts";
import { cut, cutLabel, cutMiddle, ownScreen, pad, paint, widthOf } from "../../src/cli/screen.ts";
import { shownLines } from "../../src/cli/show.ts";
import { ALL_PERMITS } from "../../src/core/line.ts";
import type { ToldEvent } from "../../src/protocol/tools.ts";
import type { ClaimView } from "../../src/spi/driver.ts";

const PIPE = { columns: null, colours: false };
const NOON = new Date(2026, 10, 21, 12, 0, 0).getTime();

function terminal(columns: number, colours = false): { readonly columns: number; readonly colours: boolean } {
  return { columns, colours };
}

/** A holder of these keys for 90 s, of whose lease 20 s are left; change what matters. */
function view(keys: string, change: Partial<ClaimView> = {}): ClaimView {
  const holds = keys.split(" ").map((key) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS }));
  return {
    holds: holds as unknown as ClaimView["holds"],
    ttlMs: 30_000,
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "ana@web-1 pid 4121 (node)",
    tag: "lrrx2sgngs",
    answer: { state: "held", token: 1_800_000_000_000_000n, tokens: 1, ttlMs: 20_000 },
    ageMs: 100_000,
    heldMs: 90_000,
    ...change,
  };
}

function waiting(keys: string, change: Partial<ClaimView> = {}): ClaimView {
  const { heldMs: _, ...rest } = view(keys, { answer: { state: "waiting", ttlMs: 25_000, recheckMs: 1_000 } });
  return { ...rest, ageMs: 5_000, label: "bob@web-2 pid 7 (sh)", ...change };
}

function event(kind: string, change: Partial<ToldEvent> = {}): ToldEvent {
  const claim = { keys: ["k"], tag: "lrrx2sgngs", label: "ana", by: "", token: 1_800_000_000_000_000n };
  return { seq: 1, at: NOON, kind, ...claim, ...change };
}

describe("the screen", () => {
  test("a pipe is not cut and has no colours; a terminal has, unless NO_COLOR or TERM=dumb", () => {
    expect(ownScreen({}, {})).toEqual(PIPE);
    expect(ownScreen({ isTTY: true, columns: 100 }, { TERM: "xterm" })).toEqual(terminal(100, true));
    expect(ownScreen({ isTTY: true, columns: 100 }, { NO_COLOR: "1" })).toEqual(terminal(100));
    expect(ownScreen({ isTTY: true, columns: 5 }, { TERM: "dumb" })).toEqual(terminal(40));
    expect(paint("x", "red", PIPE)).toBe("x");
    expect(paint("x", "red", terminal(80, true))).toBe("\u001b[31mx\u001b[0m");
  });

  test("wide characters take two columns, marks none", () => {
    expect([widthOf("abc"), widthOf("漢字"), widthOf("e\u0301"), widthOf("🔒")]).toEqual([3, 4, 1, 2]);
    expect([pad("漢", 4), pad("7", 3, "left")]).toEqual(["漢  ", "  7"]);
  });

  test("what does not fit is cut to the column, at the end or in the middle", () => {
    expect([cut("abcdef", 6), cut("abcdef", 5), cut("漢字漢字", 6)]).toEqual(["abcdef", "abcd…", "漢字…"]);
    expect([cutMiddle("abcdefghij", 10), cutMiddle("abcdefghij", 7)]).toEqual(["abcdefghij", "abcd…ij"]);
    for (let columns = 1; columns < 20; columns++) {
      for (const text of ["x".repeat(40), "漢".repeat(20), "a漢".repeat(10)]) {
        expect(widthOf(cutMiddle(text, columns))).toBeLessThanOrEqual(columns);
      }
    }
  });
});

describe("ls", () => {
  const views = [
    view("invoice:1"),
    waiting("invoice:1", { ttlMs: "session" }),
    waiting("invoice:1 other"),
    view("other", { holds: [{ key: "other", permits: 1, limit: ALL_PERMITS }] }),
    waiting("other", { holds: [{ key: "other", permits: 2, limit: 4 }] }),
  ];

  test("one row for each claim: state, since, lease left, how many are ahead", () => {
    expect(listing(views, PIPE)).toEqual([
      "KEY               STATE         SINCE    LEASE  AHEAD  TOKEN             HOLDER",
      "invoice:1         held           90 s     20 s         1800000000000000  ana@web-1 pid 4121 (node)",
      "invoice:1         waiting         5 s  session      1                    bob@web-2 pid 7 (sh)",
      "invoice:1, other  waiting         5 s     25 s      2                    bob@web-2 pid 7 (sh)",
      "other             held shared    90 s     20 s         1800000000000000  ana@web-1 pid 4121 (node)",
      "other             waiting 2/4     5 s     25 s      2                    bob@web-2 pid 7 (sh)",
    ]);
    expect(aheadOf(views)).toEqual([0, 1, 2, 1, 2]);
    expect(listing([], PIPE)).toEqual([]);
  });

  test("columns stay where they are from one look to the next", () => {
    const [now] = listing([view("k", { heldMs: 999 })], PIPE);
    const [later] = listing([view("k", { heldMs: 7_000_000, ttlMs: "session" })], PIPE);
    expect(later).toBe(now);
  });

  test.each([40, 60, 80, 109, 110, 200])("in %i columns no line is longer, whatever keys and labels are", (columns) => {
    const rows = [
      view("k".repeat(512), { label: "l".repeat(256) }),
      view("漢字".repeat(100)),
      ...views,
      ...Array.from({ length: 500 }, (_, at) => waiting(`many/${at}`)),
    ];
    const lines = listing(rows, terminal(columns));
    expect(lines).toHaveLength(rows.length + 1);
    // below that the columns that are never cut need more
    const most = Math.max(columns, 76);
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(most);
  });

  test.each([80, 100])("in %i columns the pid of a holder is whole, whatever key, host and program are", (columns) => {
    const hosts = ["web-1", "ip-10-0-12-34.eu-central-1.compute.internal", "漢字".repeat(40)];
    const rows = hosts.flatMap((host) =>
      ["sh", "(".repeat(200)].map((program) =>
        view("a-rather-long-name-of-a-key/".repeat(9), { label: `root@${host} pid 4194304 (${program})` }),
      ),
    );
    for (const line of listing(rows, terminal(columns)).slice(1)) expect(line).toContain(" pid 4194304");
    for (let width = 12; width < 60; width++) {
      for (const { label } of rows) {
        expect(cutLabel(label, width)).toContain("pid 4194304");
        expect(widthOf(cutLabel(label, width))).toBeLessThanOrEqual(width);
      }
    }
    expect(cutLabel("root@vm pid 29511 (sleep)", 24)).toBe("root@vm pid 29511 (slee…");
    expect(cutLabel("root@web-1.example.com pid 29511 (sleep)", 28)).toBe("root@w…com pid 29511 (sleep)");
    expect(cutLabel("no process but a rather long text", 12)).toBe(cutMiddle("no process but a rather long text", 12));
  });

  test("what others wrote cannot move the cursor, begin a line or change the direction", () => {
    const text = listing([view("k", { label: "a\u001b[2Jb\r\nc\u202ed" })], PIPE).join("\n");
    expect(text).toContain("a\\u{1b}[2Jb\\u{d}\\u{a}c\\u{202e}d");
    expect(visible(text.replaceAll("\n", ""))).toBe(text.replaceAll("\n", ""));
  });
});

describe("show", () => {
  test("who holds, since when, what is left of the lease, the line, and the last events", () => {
    const line = [view("k", { answer: { state: "held", token: 7n, tokens: 64, ttlMs: 20_000 } }), waiting("a k")];
    const other = { tag: "zzzzzzzzzz", operator: "ops", reason: "stuck\u0007" };
    const events = [event("waiting"), event("granted"), event("revoked", other)];
    expect(shownLines({ key: "k", line, events, most: 2 }, PIPE)).toEqual([
      "k",
      "held by ana@web-1 pid 4121 (node) for 90 s, 1 waits",
      "tokens 7 to 70 are this holder's, one for each holder in its process",
      "",
      "   #  STATE     SINCE    LEASE  TOKEN             TAG         HOLDER",
      "   1  held       90 s     20 s  7                 lrrx2sgngs  ana@web-1 pid 4121 (node)",
      "   2  waiting     5 s     25 s                    lrrx2sgngs  bob@web-2 pid 7 (sh) (and 1 more keys)",
      "",
      "last events",
      expect.stringMatching(/^ {2}TIME +EVENT +TOKEN +TAG +WHO$/),
      expect.stringMatching(/12:00:00 {2}granted {4}1800000000000000 {2}lrrx2sgngs {2}ana$/),
      expect.stringMatching(/12:00:00 {2}revoked {4}1800000000000000 {2}zzzzzzzzzz {2}ana \(by ops: stuck\\u\{7\}\)$/),
    ]);
  });

  test.each([
    ["revoked", "revoked"],
    ["outstayed", "maxHold"],
  ])("a holder that was %s and has not let go yet is not called one", (kind, loss) => {
    const events = [event(kind), ...Array.from({ length: 20 }, () => event("waiting", { tag: "zzzzzzzzzz" }))];
    const lines = shownLines({ key: "k", line: [view("k"), waiting("k")], events, most: 0 }, PIPE);
    expect(lines[1]).toBe(`held by ana@web-1 pid 4121 (node) for 90 s (${loss}, but not let go yet), 1 waits`);
    expect(lines[4]).toMatch(new RegExp(`^ {3}1 {2}${loss} +90 s`));
    expect(lines[5]).toMatch(/^ {3}2 {2}waiting /);
    expect(lines.at(-1)).toBe("events: none that is remembered");
  });

  test("a free key, several holders, and a store without events", () => {
    expect(shownLines({ key: "k", line: [], events: [] }, PIPE)).toEqual([
      "k",
      "free: nobody holds it, nobody waits",
      "",
      "events: none that is remembered",
    ]);
    const shared = shownLines({ key: "k", line: [view("k"), view("k")], events: "memory: keeps no events" }, PIPE);
    expect(shared[1]).toBe("held by 2 together, nobody waits");
    expect(shared.at(-1)).toBe("events: memory: keeps no events");
    expect(shownLines({ key: "k", line: [waiting("k")], events: [] }, PIPE)[1]).toBe("held by nobody, 1 waits");
  });

  test.each([80, 200])("in %i columns no line is longer", (columns) => {
    const long = { label: "l".repeat(256) };
    const line = [view("k".repeat(512), long), waiting("k".repeat(512), long)];
    const events = [event("reclaimed", { ...long, at: NOON - 90_000_000 })];
    const lines = shownLines({ key: "k".repeat(512), line, events }, terminal(columns)).filter(
      (text) => !text.startsWith("held by"),
    );
    for (const text of lines) expect(widthOf(text)).toBeLessThanOrEqual(columns);
  });
});

describe("events", () => {
  test("a line for each: when, what, where, whose", () => {
    expect(eventLine(event("granted"), PIPE, NOON)).toBe(
      "12:00:00  granted    k                         token 1800000000000000  ana",
    );
    const waits = event("waiting", { keys: ["a", "b"], by: "team-a" });
    const { token: _, ...place } = waits;
    expect(eventLine(place, PIPE, NOON)).toBe("12:00:00  waiting    a, b                      ana [team-a]");
    expect(eventLine(event("expired"), terminal(200, true), NOON)).toContain("\u001b[31mexpired  \u001b[0m");
  });

  test("an operator's deed tells who and why", () => {
    expect(whoOf(event("revoked", { operator: "ops", reason: "stuck" }))).toBe("ana (by ops: stuck)");
    expect(whoOf(event("removed", { operator: "", reason: "" }))).toBe("ana (by an operator)");
  });

  test("the day is told when it is not today", () => {
    expect(timeOf(NOON, NOON + 1_000)).toBe("12:00:00");
    expect(timeOf(NOON, NOON + 86_400_000)).toBe("2026-11-21 12:00:00");
  });

  test.each([60, 80, 120, 200])("in %i columns no line is longer", (columns) => {
    const long = event("reclaimed", { keys: ["k".repeat(512), "漢".repeat(90)], label: "l".repeat(256) });
    for (const one of [long, event("granted", { label: "l".repeat(256) }), event("left", { keys: ["k".repeat(30)] })]) {
      expect(widthOf(eventLine(one, terminal(columns), NOON))).toBeLessThanOrEqual(columns);
    }
    for (const line of eventTable([long], terminal(columns), columns > 100, NOON)) {
      expect(widthOf(line)).toBeLessThanOrEqual(columns);
    }
  });
});
