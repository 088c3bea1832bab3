import { expect, test } from "vitest";
import { listTable } from "../../../src/lock-table/listing.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { lockSpec, makeClaim, SECOND_MS, TableFixture, TTL_MS } from "./table-fixture.ts";

test("the first claim is granted at once, the next when the first is released", () => {
  const fixture = new TableFixture();
  expect(fixture.claim(makeClaim("a", "k"))).toMatchObject({ state: "held", tokenCount: 1, remainingMs: TTL_MS });
  expect(fixture.claim(makeClaim("b", "k"))).toMatchObject({ state: "waiting", remainingMs: TTL_MS });
  expect(fixture.release("a")).toBe(true);
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.token("b")).toBeGreaterThan(fixture.token("a"));
  expect(fixture.release("a")).toBe(false);
});

test("a grant is announced once, to the owner of the latest call, with the remaining lease", () => {
  const fixture = new TableFixture();
  fixture.claim(makeClaim("a", "k"), "first");
  fixture.claim(makeClaim("b", "k"), "second");
  fixture.advance(10 * SECOND_MS).renew("b", "third");
  fixture.advance(5 * SECOND_MS);
  fixture.table.release("a", { now: fixture.now, micros: fixture.wallMicros });
  const notifications = fixture.table.drainNotifications();
  expect(notifications).toMatchObject([
    { id: "b", owner: "third", answer: { state: "held", remainingMs: TTL_MS - 5 * SECOND_MS } },
  ]);
  expect(fixture.table.drainNotifications()).toEqual([]);
});

test("readers share, a writer waits for all of them and is granted before later readers", () => {
  const fixture = new TableFixture();
  const reader = [lockSpec("k", 1)];
  expect([fixture.claimState("r1", reader), fixture.claimState("r2", reader)]).toEqual(["held", "held"]);
  expect([fixture.claimState("w", "k"), fixture.claimState("r3", reader)]).toEqual(["waiting", "waiting"]);
  fixture.release("r1");
  expect(fixture.granted).toEqual([]);
  fixture.release("r2");
  expect(fixture.granted).toEqual(["w"]);
  fixture.release("w");
  expect(fixture.granted).toEqual(["w", "r3"]);
});

test("claiming again with the same id finds the same claim and restarts its lease", () => {
  const fixture = new TableFixture();
  const first = fixture.claim(makeClaim("a", "k"));
  fixture.advance(20 * SECOND_MS);
  expect(fixture.claim(makeClaim("a", "k"))).toEqual(first);
  fixture.advance(20 * SECOND_MS);
  expect(fixture.renew("a").state).toBe("held");
});

test("a lease that is not renewed expires, and not earlier; its id is never granted again", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.advance(10 * SECOND_MS).claimState("b", "k");
  fixture.advance(20 * SECOND_MS - 1);
  expect(fixture.granted).toEqual([]);
  fixture.advance(1);
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "expired" });
  expect(fixture.claim(makeClaim("a", "k"))).toEqual({ state: "none", reason: "expired" });
  fixture.advance(TTL_MS);
  expect(fixture.table.tombstones.size).toBe(1);
});

test("a waiting entry that is not renewed expires too, and is not granted", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k", { ttlMs: 60 * SECOND_MS });
  fixture.claimState("b", "k");
  fixture.claimState("c", "k", { ttlMs: 60 * SECOND_MS });
  fixture.advance(TTL_MS).release("a");
  expect(fixture.granted).toEqual(["c"]);
});

test("a renewal in time extends the lease, however often", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  for (let turn = 0; turn < 10; turn++) {
    fixture.advance(TTL_MS - 1);
    expect(fixture.renew("a")).toMatchObject({ state: "held", remainingMs: TTL_MS });
  }
  expect(fixture.table.nextDueAt()).toBeLessThanOrEqual(fixture.now + TTL_MS);
});

test("a waiting claim is asked to recheck when a lease ahead of it may end", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k", { ttlMs: 20 * SECOND_MS });
  fixture.advance(5 * SECOND_MS);
  expect(fixture.claim(makeClaim("b", "k"))).toMatchObject({ recheckMs: 15 * SECOND_MS });
  expect(fixture.claim(makeClaim("c", "k", { ttlMs: 10 * SECOND_MS }))).toMatchObject({ recheckMs: 10 * SECOND_MS });
  expect(fixture.claim(makeClaim("d", "k"))).toMatchObject({ recheckMs: 10 * SECOND_MS });
});

test("the recheck time considers the nearest 32 entries only", () => {
  const fixture = new TableFixture();
  for (let index = 0; index < 32; index++) fixture.claimState(`a${index}`, "k", { ttlMs: 60 * SECOND_MS });
  fixture.claimState("short", "k", { ttlMs: SECOND_MS });
  expect(fixture.claim(makeClaim("last", "k"))).toMatchObject({ recheckMs: TTL_MS });
});

test("behind a session claim the recheck time is the claim's own lease", () => {
  const fixture = new TableFixture(new LockTable({ sessionMs: 40 * SECOND_MS }));
  expect(fixture.claim(makeClaim("a", "k", { ttlMs: "session" }))).toMatchObject({
    state: "held",
    remainingMs: 40 * SECOND_MS,
  });
  expect(fixture.claim(makeClaim("b", "k"))).toMatchObject({ recheckMs: TTL_MS });
  expect(fixture.claim(makeClaim("c", "k2", { ttlMs: "session" })).state).toBe("held");
  expect(fixture.claim(makeClaim("d", "k2", { ttlMs: "session" }))).toMatchObject({ recheckMs: 40 * SECOND_MS });
  fixture.advance(1_000 * SECOND_MS);
  expect(fixture.renew("a")).toMatchObject({ state: "held", remainingMs: 40 * SECOND_MS });
  expect(fixture.table.nextDueAt()).toBeNull();
  fixture.release("a", "session");
  fixture.advance(40 * SECOND_MS - 1);
  expect(fixture.table.tombstones.reasonOf("a")).toBe("released");
  fixture.advance(1);
  expect(fixture.table.tombstones.size).toBe(0);
});

test("a late duplicate of a claim released before its answer does not enter the queue", () => {
  const fixture = new TableFixture();
  expect(fixture.release("a", TTL_MS)).toBe(false);
  fixture.advance(TTL_MS - 1);
  expect(fixture.claim(makeClaim("a", "k"))).toEqual({ state: "none", reason: "released" });
  expect(fixture.claimState("b", "k")).toBe("held");
  expect(fixture.release("b", TTL_MS)).toBe(true);
  expect(fixture.claimState("b", "k")).toBe("none");
});

test("a release without a tombstone leaves nothing behind", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.release("a");
  expect(fixture.table.tombstones.size).toBe(0);
});

test("a claim that does not wait is granted if the key is free, and else leaves no trace", () => {
  const fixture = new TableFixture();
  expect(fixture.claimState("a", "k", { wait: false })).toBe("held");
  expect(fixture.claimState("b", "k", { wait: false })).toBe("none");
  expect(fixture.claimState("c", [lockSpec("k2", 1)], { wait: false })).toBe("held");
  fixture.claimState("w", "k2");
  // it would fit, but another claim waits
  expect(fixture.claimState("d", [lockSpec("k2", 1)], { wait: false })).toBe("none");
  expect(fixture.table.records.size).toBe(3);
});

test("a list of claims shows holders and waiters from the front, without ids", () => {
  const fixture = new TableFixture();
  const tagOf = (id: string): string => `#${id}`;
  const list = (prefix: string, max = 10, after?: string) =>
    listTable(fixture.table, tagOf, { query: { prefix }, max, after }, fixture.now).items;
  fixture.claimState("a", "jobs/1", { label: "one" });
  fixture.advance(SECOND_MS).claimState("b", "jobs/1 other");
  fixture.claimState("c", "other", { ttlMs: "session" });
  fixture.advance(SECOND_MS);
  expect(list("jobs/")).toMatchObject([
    {
      tag: "#a",
      label: "one",
      ageMs: 2 * SECOND_MS,
      heldMs: 2 * SECOND_MS,
      answer: { state: "held", remainingMs: TTL_MS - 2 * SECOND_MS },
    },
    { tag: "#b", ageMs: SECOND_MS, answer: { state: "waiting", remainingMs: TTL_MS - SECOND_MS } },
  ]);
  for (const view of list("")) expect(view).not.toHaveProperty("id");
  // b has not reached "other" yet, and is listed nevertheless
  expect(list("other").map(({ tag }) => tag)).toEqual(["#c", "#b"]);
  expect(list("", 1).map(({ tag }) => tag)).toEqual(["#a"]);
  expect(list("", 2, "#a").map(({ tag }) => tag)).toEqual(["#b", "#c"]);
  expect(list("", 1, "#gone").map(({ tag }) => tag)).toEqual(["#a"]);
  expect(list("nothing")).toEqual([]);
  fixture.claimState("z", "z");
  fixture.claimState("first", "a");
  expect(list("").map(({ tag }) => tag)).toEqual(["#first", "#a", "#b", "#c", "#z"]);
});

test("a semaphore admits as many permits as each claim's limit allows", () => {
  const fixture = new TableFixture();
  expect(fixture.claimState("a", [lockSpec("k", 2, 3)])).toBe("held");
  expect(fixture.claimState("b", [lockSpec("k", 2, 3)])).toBe("waiting");
  expect(fixture.claimState("c", [lockSpec("k", 1, 3)])).toBe("waiting");
  expect(fixture.claimState("d", [lockSpec("k", 1, ALL_PERMITS)])).toBe("waiting");
  fixture.release("a");
  expect(fixture.granted).toEqual(["b", "c", "d"]);
});
