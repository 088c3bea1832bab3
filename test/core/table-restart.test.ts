import { expect, test } from "vitest";
import { ALL_PERMITS } from "../../src/core/line.ts";
import { Table } from "../../src/core/table.ts";
import { Bench, claimOf, hold, SECOND, TTL } from "./claims.ts";

/** A table that has just been started again and reclaims. */
function restarted(): Bench {
  const bench = new Bench(new Table());
  bench.table.pause();
  return bench.pass(0);
}

test("while paused nobody is admitted, and on resuming all who may are, in order of arrival", () => {
  const bench = restarted();
  expect(bench.stands("late", "k", {})).toBe("waiting");
  expect(bench.claim(claimOf("second", "k"), "owner", 20).state).toBe("waiting");
  expect(bench.claim(claimOf("first", "k"), "owner", 10).state).toBe("waiting");
  expect(bench.stands("other", "k2")).toBe("waiting");
  expect(bench.stands("once", "k3", { wait: false })).toBe("none");
  bench.release("late");
  expect(bench.collect()).toEqual([]);
  bench.table.resume();
  expect(bench.collect()).toEqual(["first", "other"]);
  bench.release("first");
  expect(bench.granted.at(-1)).toBe("second");
});

test("who comes after a restart stands behind those who waited before it", () => {
  const bench = restarted();
  const ahead = bench.wall + 5_000_000;
  bench.claim(claimOf("before", "k"), "owner", ahead);
  bench.stands("after", "k");
  bench.table.resume();
  bench.collect();
  bench.release("before");
  expect(bench.granted).toEqual(["before", "after"]);
});

test("an asserted hold stands before everybody and keeps its token and what its lease has left", () => {
  const bench = restarted();
  bench.claim(claimOf("waits", "k"), "owner", 1);
  const token = bench.wall - 500;
  expect(bench.table.assertHeld(claimOf("holds", "k"), "owner", token, 64, 10 * SECOND)).toBe(true);
  bench.table.resume();
  expect(bench.collect()).toEqual([]);
  expect(bench.renew("holds")).toMatchObject({ state: "held", token: BigInt(token), tokens: 64, ttlMs: TTL });
  bench.release("holds");
  expect(bench.granted).toEqual(["waits"]);
  expect(bench.token("waits")).toBeGreaterThanOrEqual(token + 64);
});

test("an asserted hold ends when the lease it had is over", () => {
  const bench = restarted();
  bench.table.assertHeld(claimOf("holds", "k"), "owner", bench.wall, 1, 10 * SECOND);
  bench.table.assertHeld(claimOf("session", "k2", { ttlMs: "session" }), "owner", bench.wall, 1, 10 * SECOND);
  bench.pass(10 * SECOND - 1);
  expect(bench.table.entries.size).toBe(2);
  bench.pass(1);
  expect([...bench.table.entries.keys()]).toEqual(["session"]);
});

test("of asserted holds that conflict the higher token stays, on every key", () => {
  const bench = restarted();
  const assertHeld = (id: string, keys: string, token: number): boolean =>
    bench.table.assertHeld(claimOf(id, keys), "owner", token, 1, TTL);
  expect(assertHeld("low", "a b", 10)).toBe(true);
  expect(assertHeld("high", "b c", 20)).toBe(true);
  expect(bench.renew("low")).toEqual({ state: "none", reason: "expired" });
  expect(assertHeld("lower", "c", 15)).toBe(false);
  expect(bench.renew("high").state).toBe("held");
  expect(assertHeld("a", "a", 5)).toBe(true);
});

test("of claims marked as kept the table says when they are gone, however they go", () => {
  const gone: string[] = [];
  const bench = new Bench(new Table({ forgotten: ({ claim }) => gone.push(claim.id) }));
  for (const id of ["a", "b", "c", "d"]) bench.stands(id, id);
  for (const id of ["a", "b", "c"]) bench.table.entries.get(id)!.kept = true;
  bench.release("a");
  bench.revoke("b", bench.token("b"), true);
  bench.release("d");
  expect(gone).toEqual(["a", "b"]);
  bench.pass(TTL);
  expect(gone).toEqual(["a", "b", "c"]);
});

test("a table that nobody listens to forgets kept claims all the same", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.table.entries.get("a")!.kept = true;
  expect(bench.release("a")).toBe(true);
});

test("asserted holds that can share do, and one that is asserted twice is one", () => {
  const bench = restarted();
  const reader = (id: string): boolean =>
    bench.table.assertHeld(claimOf(id, [hold("k", 1)]), "owner", Number(id), 1, TTL);
  expect([reader("1"), reader("2"), reader("1")]).toEqual([true, true, true]);
  expect(bench.table.mint.lines.get("k")?.used).toBe(2);
});

test("an unreachable waiter's place is passed over, and stands where its arrival says when it is back", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  for (const id of ["b", "c", "d"]) bench.stands(id, "k");
  bench.table.park("b");
  bench.table.park("b");
  bench.release("a");
  expect(bench.granted).toEqual(["c"]);
  bench.table.unpark("b");
  bench.release("c");
  expect(bench.granted).toEqual(["c", "b"]);
  expect(bench.renew("d").state).toBe("waiting");
});

test("a place that leaves the line makes room, and on coming back may be admitted at once", () => {
  const bench = new Bench();
  bench.stands("reader", [hold("k", 1)]);
  bench.stands("writer", "k");
  bench.stands("reader2", [hold("k", 1)]);
  bench.table.park("writer");
  expect(bench.collect()).toEqual(["reader2"]);
  bench.release("reader");
  bench.release("reader2");
  bench.pass(SECOND);
  bench.table.unpark("writer");
  expect(bench.collect()).toEqual(["writer"]);
});

test("holders are not parked, nor claims that are not there; who was not parked is not unparked", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("b", "k");
  for (const id of ["a", "gone"]) bench.table.park(id);
  for (const id of ["a", "b", "gone"]) bench.table.unpark(id);
  expect(bench.renew("a").state).toBe("held");
  bench.release("a");
  expect(bench.granted).toEqual(["b"]);
});

test("a parked place answers, is listed as waiting, and ends with its lease or its release", () => {
  const bench = new Bench();
  bench.stands("a", "k", { ttlMs: 90 * SECOND });
  for (const id of ["b", "c"]) {
    bench.stands(id, "k");
    bench.table.park(id);
  }
  expect(bench.renew("b").state).toBe("waiting");
  expect(bench.release("b")).toBe(true);
  bench.pass(TTL);
  expect(bench.renew("c")).toEqual({ state: "none", reason: "expired" });
  expect(bench.table.mint.lines.get("k")?.seats.size).toBe(1);
  bench.release("a");
  bench.pass(SECOND);
  expect(bench.table.mint.lines.size).toBe(0);
});

test("a place over several keys that is parked keeps the keys it has", () => {
  const bench = new Bench();
  bench.stands("b", "b");
  bench.stands("ab", "a b");
  bench.table.park("ab");
  bench.release("b");
  expect(bench.stands("a", "a")).toBe("waiting");
  bench.pass(SECOND);
  bench.table.unpark("ab");
  expect(bench.collect()).toEqual(["ab"]);
  bench.release("ab");
  expect(bench.granted).toEqual(["ab", "a"]);
});

test("holds with different limits stay if there is an order in which each could have been granted; else the lowest token goes", () => {
  const asserted = (...holds: readonly [id: string, permits: number, limit: number, token: number][]): string[] => {
    const { table } = restarted();
    for (const [id, permits, limit, token] of holds) {
      table.assertHeld(claimOf(id, [hold("k", permits, limit)]), "owner", token, 1, TTL);
    }
    return [...table.entries.keys()].sort();
  };
  // the one of limit 2 came first, though its token is the higher: it waited for another key
  expect(asserted(["reader", 1, ALL_PERMITS, 5], ["two", 2, 2, 9])).toEqual(["reader", "two"]);
  expect(asserted(["two", 2, 2, 9], ["reader", 1, ALL_PERMITS, 5])).toEqual(["reader", "two"]);
  expect(asserted(["two of two", 2, 2, 9], ["two of three", 2, 3, 5])).toEqual(["two of two"]);
  expect(asserted(["two of two", 2, 2, 5], ["two of three", 2, 3, 9])).toEqual(["two of three"]);
});

test("a hold that an asserted one with a higher token displaces is told at once that it is lost", () => {
  const bench = restarted();
  bench.table.resume();
  bench.stands("newer", "k");
  const token = bench.token("newer");
  bench.table.pause();
  expect(bench.table.assertHeld(claimOf("lower", "k"), "owner", token - 1, 1, TTL)).toBe(false);
  bench.table.takeGrants();
  expect(bench.table.assertHeld(claimOf("higher", "k"), "owner", token + 1, 1, TTL)).toBe(true);
  expect(bench.table.takeGrants()).toMatchObject([{ id: "newer", answer: { state: "none", reason: "expired" } }]);
});

test("while paused a claim that only lacks tokens is not granted when the ceiling is raised, but on resuming", () => {
  const bench = new Bench(new Table({ ceiling: 0 }));
  expect(bench.stands("a", "k")).toBe("waiting");
  bench.table.pause();
  bench.table.raise(Number.POSITIVE_INFINITY);
  expect(bench.collect()).toEqual([]);
  expect(bench.table.wanting).toBeGreaterThan(0);
  bench.table.resume();
  expect(bench.collect()).toEqual(["a"]);
});

test("what fits beside the holders is told from what is free: waiters do not count, holders of any key do", () => {
  const bench = new Bench();
  bench.stands("reader", [hold("k", 1)]);
  bench.stands("writer", "k");
  const another = claimOf("another", [hold("k", 1), hold("unused", 1)]);
  expect(bench.table.fits(another)).toBe(true);
  expect(bench.table.isFree(another)).toBe(false);
  expect(bench.table.fits(claimOf("exclusive", "unused k"))).toBe(false);
  bench.table.pause();
  expect(bench.table.fits(another)).toBe(true);
  expect(bench.table.isFree(claimOf("new", "unused"))).toBe(false);
});
