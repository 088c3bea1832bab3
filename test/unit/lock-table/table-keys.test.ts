import { expect, test } from "vitest";
import { lockSpec, makeClaim, TableFixture } from "./table-fixture.ts";

test("a claim over several keys takes them one after another and waits at the first busy one", () => {
  const fixture = new TableFixture();
  fixture.claimState("b", "b");
  expect(fixture.claimState("abc", "a b c")).toBe("waiting");
  // it has a, waits in b, and has not reached c
  expect(fixture.claimState("a", "a", { wait: false })).toBe("none");
  expect(fixture.claimState("c", "c")).toBe("held");
  fixture.release("b");
  expect(fixture.granted).toEqual([]);
  fixture.release("c");
  expect(fixture.granted).toEqual(["abc"]);
});

test("a claim that moves on to a queue with another waiter does not take that waiter's turn", () => {
  const fixture = new TableFixture();
  fixture.claimState("ab", "a b");
  fixture.claimState("next", "a b");
  fixture.claimState("b", "b");
  fixture.release("ab");
  // next is admitted in a first and enters b behind the waiter there
  expect(fixture.granted).toEqual(["b"]);
  fixture.release("b");
  expect(fixture.granted).toEqual(["b", "next"]);
});

test("holds that end together let all waiters behind them proceed", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "a");
  fixture.claimState("b", "b");
  fixture.claimState("x", "a b", { ttlMs: 60_000 });
  fixture.claimState("y", "b", { ttlMs: 60_000 });
  fixture.advance(30_000);
  expect(fixture.granted).toEqual(["y"]);
  fixture.release("y");
  expect(fixture.granted).toEqual(["y", "x"]);
});

test("a claim over several keys has one token above the counters of all its keys", () => {
  const fixture = new TableFixture();
  fixture.claimState("b", "b", { tokenCount: 1_000 });
  fixture.release("b");
  expect(fixture.claimState("ab", "a b")).toBe("held");
  expect(fixture.token("ab")).toBeGreaterThanOrEqual(fixture.token("b") + 1_000);
  fixture.release("ab");
  fixture.claimState("a", "a");
  expect(fixture.token("a")).toBeGreaterThan(fixture.token("ab"));
});

test("a claim that does not wait leaves no trace in any queue", () => {
  const fixture = new TableFixture();
  fixture.claimState("b", "b");
  expect(fixture.claimState("once", "a b", { wait: false })).toBe("none");
  expect(fixture.claimState("a", "a")).toBe("held");
  expect(fixture.table.records.size).toBe(2);
});

test("a claim that is released while waiting releases the keys it has taken", () => {
  const fixture = new TableFixture();
  fixture.claimState("b", "b");
  fixture.claimState("ab", "a b");
  fixture.claimState("a", "a");
  expect(fixture.release("ab")).toBe(true);
  expect(fixture.granted).toEqual(["a"]);
});

test("claims that want the same keys in opposite order do not deadlock", () => {
  const fixture = new TableFixture();
  fixture.claimState("y", "a");
  fixture.claimState("x", "a b");
  expect(fixture.claim(makeClaim("y2", [lockSpec("b")])).state).toBe("held");
});
