import { expect, test } from "vitest";
import { Entry } from "../../src/core/entry.ts";
import { Mint } from "../../src/core/mint.ts";
import { Seat } from "../../src/core/seats.ts";
import { Table } from "../../src/core/table.ts";
import { Bench, claimOf, hold, SECOND } from "./claims.ts";

test("a token is the clock in microseconds when nothing else is in the way", () => {
  const bench = new Bench();
  bench.pass(5);
  bench.stands("a", "k");
  expect(bench.token("a")).toBe(bench.wall);
});

test("the next token lies above the whole run before it, even while the clock stands still or goes back", () => {
  const bench = new Bench();
  bench.stands("a", "k", { tokens: 64 });
  bench.release("a");
  bench.stands("b", "k");
  expect(bench.token("b")).toBe(bench.token("a") + 64);
  bench.release("b");
  bench.wall -= 3_600_000_000;
  bench.stands("c", "k");
  expect(bench.token("c")).toBe(bench.token("b") + 1);
  // a key that was forgotten meanwhile rises too
  bench.stands("d", "fresh");
  expect(bench.token("d")).toBeGreaterThanOrEqual(bench.token("a"));
});

test("a token is never below the floor its client has seen", () => {
  const bench = new Bench();
  const floor = BigInt(bench.wall) + 1_000_000n;
  bench.stands("a", "k", { floor });
  expect(bench.token("a")).toBe(Number(floor));
  bench.release("a");
  bench.stands("b", "k");
  expect(bench.token("b")).toBe(Number(floor) + 1);
});

test("a floor more than a day ahead of the clock cannot be reached", () => {
  const mint = new Mint(Number.POSITIVE_INFINITY);
  const day = 86_400_000_000n;
  expect(mint.reaches(0n, 0)).toBe(true);
  expect(mint.reaches(day, 0)).toBe(true);
  expect(mint.reaches(day + 1n, 0)).toBe(false);
  mint.advance(1);
  expect(mint.reaches(day + 1n, 0)).toBe(true);
});

test("an idle key leaves nothing once the clock has passed its last token", () => {
  const bench = new Bench();
  const { mint } = bench.table;
  bench.stands("a", "k", { tokens: 64 });
  bench.release("a");
  expect(mint.lines.size).toBe(1);
  bench.wall += 63;
  bench.pass(0);
  expect(mint.lines.size).toBe(1);
  bench.wall += 1;
  bench.pass(0);
  expect(mint.lines.size).toBe(0);
  bench.pass(1).stands("b", "k");
  bench.pass(1).release("b");
  expect(mint.lines.size).toBe(0);
});

test("a key in use is not forgotten when the clock passes a token of before", () => {
  const bench = new Bench();
  bench.stands("a", "k", { tokens: 64 });
  bench.release("a");
  bench.stands("b", "k", { tokens: 64 });
  bench.pass(SECOND);
  expect(bench.stands("c", "k")).toBe("waiting");
  bench.release("b");
  expect(bench.granted).toEqual(["c"]);
  bench.pass(SECOND).release("c");
  expect(bench.table.mint.lines.size).toBe(0);
});

test("a million turns on a key whose tokens run ahead of the clock leave one note", () => {
  const bench = new Bench();
  for (let turn = 0; turn < 1_000; turn++) {
    bench.stands(`a${turn}`, "k", { tokens: 64 });
    bench.release(`a${turn}`);
  }
  expect(bench.table.mint.lingers).toBe(true);
  bench.pass(64);
  expect([bench.table.mint.lingers, bench.table.mint.lines.size]).toEqual([false, 0]);
});

test("no token reaches the ceiling; what would waits until it is raised", () => {
  const bench = new Bench(new Table({ ceiling: 1_577_836_800_000_000 + 1_000 }));
  bench.stands("a", "k", { tokens: 1_000 });
  expect(bench.token("a") + 999).toBeLessThan(bench.table.mint.ceiling);
  bench.release("a");
  expect(bench.stands("b", "k", { tokens: 1 })).toBe("waiting");
  expect(bench.stands("once", "k2", { wait: false, tokens: 1_001 })).toBe("none");
  expect(bench.stands("c", [hold("k2")], { tokens: 2_000 })).toBe("waiting");
  expect(bench.stands("gone", "k3", { tokens: 1_001 })).toBe("waiting");
  bench.release("gone");
  expect(bench.table.wanting).toBe(bench.wall + 2_000);
  bench.table.raise(bench.wall + 1_500);
  expect(bench.collect()).toEqual(["b"]);
  expect(bench.token("b")).toBe(bench.token("a") + 1_000);
  bench.table.raise(bench.wall + 5_000);
  expect(bench.collect()).toEqual(["c"]);
  expect(bench.table.wanting).toBe(0);
});

test("a claim that waits for the ceiling keeps its place, and ends with its lease", () => {
  const bench = new Bench(new Table({ ceiling: 0 }));
  expect(bench.stands("a", "k")).toBe("waiting");
  expect(bench.stands("b", "k", { ttlMs: 60 * SECOND })).toBe("waiting");
  bench.pass(30 * SECOND);
  bench.table.raise(Number.POSITIVE_INFINITY);
  expect(bench.collect()).toEqual(["b"]);
});

test("tokens of several keys move together", () => {
  const mint = new Mint(Number.POSITIVE_INFINITY);
  const claim = claimOf("a", "a b", { tokens: 10 });
  mint.advance(100);
  const entry = new Entry(claim, null, 0, 0, 1);
  for (const { key, permits, limit } of claim.holds) {
    entry.sit(new Seat(mint.line(key), entry, permits, limit, 1));
  }
  expect(mint.take(entry)).toBe(100);
  expect(mint.line("a").last).toBe(109);
  mint.spent(claim, 50);
  expect(mint.line("b").last).toBe(109);
  expect(mint.nextFor(claimOf("b", "b"))).toBe(110);
  expect(mint.nextFor(claimOf("c", "c"))).toBe(100);
});
