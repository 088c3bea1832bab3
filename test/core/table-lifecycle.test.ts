import { expect, test } from "vitest";
import { ALL_PERMITS } from "../../src/core/line.ts";
import { listTable } from "../../src/core/listing.ts";
import { Table } from "../../src/core/table.ts";
import { Bench, claimOf, hold, SECOND, TTL } from "./claims.ts";

test("the first is granted at once, the next when the first has gone", () => {
  const bench = new Bench();
  expect(bench.claim(claimOf("a", "k"))).toMatchObject({ state: "held", tokens: 1, ttlMs: TTL });
  expect(bench.claim(claimOf("b", "k"))).toMatchObject({ state: "waiting", ttlMs: TTL });
  expect(bench.release("a")).toBe(true);
  expect(bench.granted).toEqual(["b"]);
  expect(bench.token("b")).toBeGreaterThan(bench.token("a"));
  expect(bench.release("a")).toBe(false);
});

test("a grant is announced once, to the owner who asked last, with what is left of the lease", () => {
  const bench = new Bench();
  bench.claim(claimOf("a", "k"), "first");
  bench.claim(claimOf("b", "k"), "second");
  bench.pass(10 * SECOND).renew("b", "third");
  bench.pass(5 * SECOND);
  bench.table.release("a", bench.now, bench.wall);
  const grants = bench.table.takeGrants();
  expect(grants).toMatchObject([{ id: "b", owner: "third", answer: { state: "held", ttlMs: TTL - 5 * SECOND } }]);
  expect(bench.table.takeGrants()).toEqual([]);
});

test("readers share, a writer waits for all of them and stands before later readers", () => {
  const bench = new Bench();
  const reader = [hold("k", 1)];
  expect([bench.stands("r1", reader), bench.stands("r2", reader)]).toEqual(["held", "held"]);
  expect([bench.stands("w", "k"), bench.stands("r3", reader)]).toEqual(["waiting", "waiting"]);
  bench.release("r1");
  expect(bench.granted).toEqual([]);
  bench.release("r2");
  expect(bench.granted).toEqual(["w"]);
  bench.release("w");
  expect(bench.granted).toEqual(["w", "r3"]);
});

test("claiming again with the same id finds the same claim and restarts its lease", () => {
  const bench = new Bench();
  const first = bench.claim(claimOf("a", "k"));
  bench.pass(20 * SECOND);
  expect(bench.claim(claimOf("a", "k"))).toEqual(first);
  bench.pass(20 * SECOND);
  expect(bench.renew("a").state).toBe("held");
});

test("a lease that is not renewed ends, and not earlier; its id is never granted again", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.pass(10 * SECOND).stands("b", "k");
  bench.pass(20 * SECOND - 1);
  expect(bench.granted).toEqual([]);
  bench.pass(1);
  expect(bench.granted).toEqual(["b"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "expired" });
  expect(bench.claim(claimOf("a", "k"))).toEqual({ state: "none", reason: "expired" });
  bench.pass(TTL);
  expect(bench.table.endings.size).toBe(1);
});

test("a place that is not renewed ends too, and nobody is granted to it", () => {
  const bench = new Bench();
  bench.stands("a", "k", { ttlMs: 60 * SECOND });
  bench.stands("b", "k");
  bench.stands("c", "k", { ttlMs: 60 * SECOND });
  bench.pass(TTL).release("a");
  expect(bench.granted).toEqual(["c"]);
});

test("a renewal that comes in time moves the end, however often", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  for (let turn = 0; turn < 10; turn++) {
    bench.pass(TTL - 1);
    expect(bench.renew("a")).toMatchObject({ state: "held", ttlMs: TTL });
  }
  expect(bench.table.nextDue()).toBeLessThanOrEqual(bench.now + TTL);
});

test("a waiting claim is told to ask again when a lease ahead of it may end", () => {
  const bench = new Bench();
  bench.stands("a", "k", { ttlMs: 20 * SECOND });
  bench.pass(5 * SECOND);
  expect(bench.claim(claimOf("b", "k"))).toMatchObject({ recheckMs: 15 * SECOND });
  expect(bench.claim(claimOf("c", "k", { ttlMs: 10 * SECOND }))).toMatchObject({ recheckMs: 10 * SECOND });
  expect(bench.claim(claimOf("d", "k"))).toMatchObject({ recheckMs: 10 * SECOND });
});

test("the time to ask again looks at the nearest 32 only", () => {
  const bench = new Bench();
  for (let index = 0; index < 32; index++) bench.stands(`a${index}`, "k", { ttlMs: 60 * SECOND });
  bench.stands("short", "k", { ttlMs: SECOND });
  expect(bench.claim(claimOf("last", "k"))).toMatchObject({ recheckMs: TTL });
});

test("behind a session the time to ask again is the lease's own", () => {
  const bench = new Bench(new Table({ sessionMs: 40 * SECOND }));
  expect(bench.claim(claimOf("a", "k", { ttlMs: "session" }))).toMatchObject({ state: "held", ttlMs: 40 * SECOND });
  expect(bench.claim(claimOf("b", "k"))).toMatchObject({ recheckMs: TTL });
  expect(bench.claim(claimOf("c", "k2", { ttlMs: "session" })).state).toBe("held");
  expect(bench.claim(claimOf("d", "k2", { ttlMs: "session" }))).toMatchObject({ recheckMs: 40 * SECOND });
  bench.pass(1_000 * SECOND);
  expect(bench.renew("a")).toMatchObject({ state: "held", ttlMs: 40 * SECOND });
  expect(bench.table.nextDue()).toBeNull();
  bench.release("a", "session");
  bench.pass(40 * SECOND - 1);
  expect(bench.table.endings.reasonOf("a")).toBe("released");
  bench.pass(1);
  expect(bench.table.endings.size).toBe(0);
});

test("a late duplicate of a claim that was released unanswered takes no place", () => {
  const bench = new Bench();
  expect(bench.release("a", TTL)).toBe(false);
  bench.pass(TTL - 1);
  expect(bench.claim(claimOf("a", "k"))).toEqual({ state: "none", reason: "released" });
  expect(bench.stands("b", "k")).toBe("held");
  expect(bench.release("b", TTL)).toBe(true);
  expect(bench.stands("b", "k")).toBe("none");
});

test("without that wish nothing is remembered of a release", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.release("a");
  expect(bench.table.endings.size).toBe(0);
});

test("who asks once is granted what is free, and else leaves no trace", () => {
  const bench = new Bench();
  expect(bench.stands("a", "k", { wait: false })).toBe("held");
  expect(bench.stands("b", "k", { wait: false })).toBe("none");
  expect(bench.stands("c", [hold("k2", 1)], { wait: false })).toBe("held");
  bench.stands("w", "k2");
  // it would fit, but somebody waits
  expect(bench.stands("d", [hold("k2", 1)], { wait: false })).toBe("none");
  expect(bench.table.entries.size).toBe(3);
});

test("a claim list shows holders and waiters from the front, without ids", () => {
  const bench = new Bench();
  const tagOf = (id: string): string => `#${id}`;
  const list = (prefix: string, max = 10, after?: string) =>
    listTable(bench.table, tagOf, { filter: { prefix }, max, ...(after !== undefined && { after }) }, bench.now);
  bench.stands("a", "jobs/1", { label: "one" });
  bench.pass(SECOND).stands("b", "jobs/1 other");
  bench.stands("c", "other", { ttlMs: "session" });
  bench.pass(SECOND);
  expect(list("jobs/")).toMatchObject([
    {
      tag: "#a",
      label: "one",
      ageMs: 2 * SECOND,
      heldMs: 2 * SECOND,
      answer: { state: "held", ttlMs: TTL - 2 * SECOND },
    },
    { tag: "#b", ageMs: SECOND, answer: { state: "waiting", ttlMs: TTL - SECOND } },
  ]);
  for (const view of list("")) expect(view).not.toHaveProperty("id");
  // b has not come to "other" yet, and is shown all the same
  expect(list("other").map(({ tag }) => tag)).toEqual(["#c", "#b"]);
  expect(list("", 1).map(({ tag }) => tag)).toEqual(["#a"]);
  expect(list("", 2, "#a").map(({ tag }) => tag)).toEqual(["#b", "#c"]);
  expect(list("", 1, "#gone").map(({ tag }) => tag)).toEqual(["#a"]);
  expect(list("nothing")).toEqual([]);
  bench.stands("z", "z");
  bench.stands("first", "a");
  expect(list("").map(({ tag }) => tag)).toEqual(["#first", "#a", "#b", "#c", "#z"]);
});

test("a semaphore admits as many permits as each claim allows", () => {
  const bench = new Bench();
  expect(bench.stands("a", [hold("k", 2, 3)])).toBe("held");
  expect(bench.stands("b", [hold("k", 2, 3)])).toBe("waiting");
  expect(bench.stands("c", [hold("k", 1, 3)])).toBe("waiting");
  expect(bench.stands("d", [hold("k", 1, ALL_PERMITS)])).toBe("waiting");
  bench.release("a");
  expect(bench.granted).toEqual(["b", "c", "d"]);
});
