import { expect, test } from "vitest";
import { Bench, claimOf, hold } from "./claims.ts";

test("a claim over several keys takes them one after another and waits where it stops", () => {
  const bench = new Bench();
  bench.stands("b", "b");
  expect(bench.stands("abc", "a b c")).toBe("waiting");
  // it has a, waits in b, and has not come to c
  expect(bench.stands("a", "a", { wait: false })).toBe("none");
  expect(bench.stands("c", "c")).toBe("held");
  bench.release("b");
  expect(bench.granted).toEqual([]);
  bench.release("c");
  expect(bench.granted).toEqual(["abc"]);
});

test("a claim that is led on to a line where another waits does not take that one's turn", () => {
  const bench = new Bench();
  bench.stands("ab", "a b");
  bench.stands("next", "a b");
  bench.stands("b", "b");
  bench.release("ab");
  // next is admitted in a first and enters b behind the one who waits there
  expect(bench.granted).toEqual(["b"]);
  bench.release("b");
  expect(bench.granted).toEqual(["b", "next"]);
});

test("holds that end together let everyone behind them go on", () => {
  const bench = new Bench();
  bench.stands("a", "a");
  bench.stands("b", "b");
  bench.stands("x", "a b", { ttlMs: 60_000 });
  bench.stands("y", "b", { ttlMs: 60_000 });
  bench.pass(30_000);
  expect(bench.granted).toEqual(["y"]);
  bench.release("y");
  expect(bench.granted).toEqual(["y", "x"]);
});

test("a claim over several keys has one token above every one of their counters", () => {
  const bench = new Bench();
  bench.stands("b", "b", { tokens: 1_000 });
  bench.release("b");
  expect(bench.stands("ab", "a b")).toBe("held");
  expect(bench.token("ab")).toBeGreaterThanOrEqual(bench.token("b") + 1_000);
  bench.release("ab");
  bench.stands("a", "a");
  expect(bench.token("a")).toBeGreaterThan(bench.token("ab"));
});

test("who asks once leaves no trace in any line", () => {
  const bench = new Bench();
  bench.stands("b", "b");
  expect(bench.stands("once", "a b", { wait: false })).toBe("none");
  expect(bench.stands("a", "a")).toBe("held");
  expect(bench.table.entries.size).toBe(2);
});

test("a claim that leaves gives back the lines it had", () => {
  const bench = new Bench();
  bench.stands("b", "b");
  bench.stands("ab", "a b");
  bench.stands("a", "a");
  expect(bench.release("ab")).toBe(true);
  expect(bench.granted).toEqual(["a"]);
});

test("the deadlock of placing all keys at once does not happen", () => {
  const bench = new Bench();
  bench.stands("y", "a");
  bench.stands("x", "a b");
  expect(bench.claim(claimOf("y2", [hold("b")])).state).toBe("held");
});
