import { expect, test } from "vitest";
import type { ClaimRecord } from "../../../src/lock-table/key-queue.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { lockSpec, makeClaim, SECOND_MS, TableFixture, TTL_MS } from "./table-fixture.ts";

/** A restarted table in recovery. */
function restartTable(): TableFixture {
  const fixture = new TableFixture(new LockTable());
  fixture.table.pauseGrants();
  return fixture.advance(0);
}

test("a paused table admits no claim, and on resuming admits all it can in order of arrival", () => {
  const fixture = restartTable();
  expect(fixture.claimState("late", "k", {})).toBe("waiting");
  expect(fixture.claim(makeClaim("second", "k"), "owner", 20).state).toBe("waiting");
  expect(fixture.claim(makeClaim("first", "k"), "owner", 10).state).toBe("waiting");
  expect(fixture.claimState("other", "k2")).toBe("waiting");
  expect(fixture.claimState("once", "k3", { wait: false })).toBe("none");
  fixture.release("late");
  expect(fixture.collectGrants()).toEqual([]);
  fixture.table.resumeGrants();
  expect(fixture.collectGrants()).toEqual(["first", "other"]);
  fixture.release("first");
  expect(fixture.granted.at(-1)).toBe("second");
});

test("a claim made after a restart queues behind the waiters from before it", () => {
  const fixture = restartTable();
  const laterMicros = fixture.wallMicros + 5_000_000;
  fixture.claim(makeClaim("before", "k"), "owner", laterMicros);
  fixture.claimState("after", "k");
  fixture.table.resumeGrants();
  fixture.collectGrants();
  fixture.release("before");
  expect(fixture.granted).toEqual(["before", "after"]);
});

test("an asserted hold precedes all other entries and keeps its token and its remaining lease", () => {
  const fixture = restartTable();
  fixture.claim(makeClaim("waits", "k"), "owner", 1);
  const token = fixture.wallMicros - 500;
  expect(
    fixture.table.reclaim(
      makeClaim("holds", "k"),
      { owner: "owner" },
      { token, tokenCount: 64, remainingMs: 10 * SECOND_MS },
    ),
  ).toBe(true);
  fixture.table.resumeGrants();
  expect(fixture.collectGrants()).toEqual([]);
  expect(fixture.renew("holds")).toMatchObject({
    state: "held",
    token: BigInt(token),
    tokenCount: 64,
    remainingMs: TTL_MS,
  });
  fixture.release("holds");
  expect(fixture.granted).toEqual(["waits"]);
  expect(fixture.token("waits")).toBeGreaterThanOrEqual(token + 64);
});

test("a stored claim that waits keeps its remaining lease, and is granted behind those before it", () => {
  const fixture = restartTable();
  const stored = { tokenCount: 1, remainingMs: 10 * SECOND_MS };
  fixture.table.reclaim(makeClaim("holds", "k"), { owner: "owner" }, { ...stored, token: 1 });
  fixture.table.reclaim(makeClaim("short", "k"), { owner: "owner" }, { ...stored, token: 0, remainingMs: SECOND_MS });
  fixture.table.reclaim(makeClaim("waits", "k"), { owner: "owner" }, { ...stored, token: 0 });
  fixture.table.resumeGrants();
  fixture.advance(SECOND_MS);
  expect([...fixture.table.records.keys()]).toEqual(["holds", "waits"]);
  fixture.release("holds");
  expect(fixture.granted).toEqual(["waits"]);
});

test("an asserted hold ends when its remaining lease is over", () => {
  const fixture = restartTable();
  fixture.table.reclaim(
    makeClaim("holds", "k"),
    { owner: "owner" },
    { token: fixture.wallMicros, tokenCount: 1, remainingMs: 10 * SECOND_MS },
  );
  fixture.table.reclaim(
    makeClaim("session", "k2", { ttlMs: "session" }),
    { owner: "owner" },
    { token: fixture.wallMicros, tokenCount: 1, remainingMs: 10 * SECOND_MS },
  );
  fixture.advance(10 * SECOND_MS - 1);
  expect(fixture.table.records.size).toBe(2);
  fixture.advance(1);
  expect([...fixture.table.records.keys()]).toEqual(["session"]);
});

test("of conflicting asserted holds the one with the higher token stays, on every key", () => {
  const fixture = restartTable();
  const assertHeld = (id: string, keys: string, token: number): boolean =>
    fixture.table.reclaim(makeClaim(id, keys), { owner: "owner" }, { token, tokenCount: 1, remainingMs: TTL_MS });
  expect(assertHeld("low", "a b", 10)).toBe(true);
  expect(assertHeld("high", "b c", 20)).toBe(true);
  expect(fixture.renew("low")).toEqual({ state: "none", reason: "expired" });
  expect(assertHeld("lower", "c", 15)).toBe(false);
  expect(fixture.renew("high").state).toBe("held");
  expect(assertHeld("a", "a", 5)).toBe(true);
});

test("each claim is reported when it enters the table and when it leaves it, however it ends", () => {
  const present: string[] = [];
  const onAdded = ({ claim }: ClaimRecord): void => void present.push(claim.id);
  const onRemoved = ({ claim }: ClaimRecord): void => void present.splice(present.indexOf(claim.id), 1);
  const fixture = new TableFixture(new LockTable({ tokenCeiling: 2e15, onAdded, onRemoved }));
  for (const id of ["a", "b", "c"]) fixture.claimState(id, id);
  fixture.claimState("waiting", "a");
  expect(present).toEqual(["a", "b", "c", "waiting"]);
  fixture.release("a");
  fixture.revoke("b", fixture.token("b"), true);
  expect(present).toEqual(["c", "waiting"]);
  // admitted, and removed at once because its token would reach the ceiling
  expect(fixture.claimState("d", "d", { wait: false, floor: BigInt(3e15) })).toBe("none");
  expect(present).toEqual(["c", "waiting"]);
  fixture.advance(TTL_MS);
  expect(present).toEqual([]);
  const loser = { token: 5, tokenCount: 1, remainingMs: TTL_MS };
  fixture.table.reclaim(makeClaim("high", "k"), { owner: null }, { ...loser, token: 6 });
  fixture.table.reclaim(makeClaim("low", "k"), { owner: null }, loser);
  expect(present).toEqual(["high"]);
});

test("asserted holds that can share all stay, and a hold asserted twice counts once", () => {
  const fixture = restartTable();
  const reader = (id: string): boolean =>
    fixture.table.reclaim(
      makeClaim(id, [lockSpec("k", 1)]),
      { owner: "owner" },
      { token: Number(id), tokenCount: 1, remainingMs: TTL_MS },
    );
  expect([reader("1"), reader("2"), reader("1")]).toEqual([true, true, true]);
  expect(fixture.table.queues.get("k")?.usedPermits).toBe(2);
});

test("a suspended waiter is passed over, and returns to the position of its arrival", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  for (const id of ["b", "c", "d"]) fixture.claimState(id, "k");
  fixture.table.suspendWaiter("b");
  fixture.table.suspendWaiter("b");
  fixture.release("a");
  expect(fixture.granted).toEqual(["c"]);
  fixture.table.resumeWaiter("b");
  fixture.release("c");
  expect(fixture.granted).toEqual(["c", "b"]);
  expect(fixture.renew("d").state).toBe("waiting");
});

test("suspending an entry makes room behind it, and on its return it may be admitted at once", () => {
  const fixture = new TableFixture();
  fixture.claimState("reader", [lockSpec("k", 1)]);
  fixture.claimState("writer", "k");
  fixture.claimState("reader2", [lockSpec("k", 1)]);
  fixture.table.suspendWaiter("writer");
  expect(fixture.collectGrants()).toEqual(["reader2"]);
  fixture.release("reader");
  fixture.release("reader2");
  fixture.advance(SECOND_MS);
  fixture.table.resumeWaiter("writer");
  expect(fixture.collectGrants()).toEqual(["writer"]);
});

test("holders and unknown claims cannot be suspended; an entry that was not suspended cannot be resumed", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("b", "k");
  for (const id of ["a", "gone"]) fixture.table.suspendWaiter(id);
  for (const id of ["a", "b", "gone"]) fixture.table.resumeWaiter(id);
  expect(fixture.renew("a").state).toBe("held");
  fixture.release("a");
  expect(fixture.granted).toEqual(["b"]);
});

test("a suspended entry answers, is listed as waiting, and ends with its lease or its release", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k", { ttlMs: 90 * SECOND_MS });
  for (const id of ["b", "c"]) {
    fixture.claimState(id, "k");
    fixture.table.suspendWaiter(id);
  }
  expect(fixture.renew("b").state).toBe("waiting");
  expect(fixture.release("b")).toBe(true);
  fixture.advance(TTL_MS);
  expect(fixture.renew("c")).toEqual({ state: "none", reason: "expired" });
  expect(fixture.table.queues.get("k")?.entries.size).toBe(1);
  fixture.release("a");
  fixture.advance(SECOND_MS);
  expect(fixture.table.queues.size).toBe(0);
});

test("a suspended entry over several keys keeps the keys it has", () => {
  const fixture = new TableFixture();
  fixture.claimState("b", "b");
  fixture.claimState("ab", "a b");
  fixture.table.suspendWaiter("ab");
  fixture.release("b");
  expect(fixture.claimState("a", "a")).toBe("waiting");
  fixture.advance(SECOND_MS);
  fixture.table.resumeWaiter("ab");
  expect(fixture.collectGrants()).toEqual(["ab"]);
  fixture.release("ab");
  expect(fixture.granted).toEqual(["ab", "a"]);
});

test("holders with different limits stay if some order could have granted them all; else the lowest token is displaced", () => {
  const asserted = (...holders: readonly [id: string, permits: number, limit: number, token: number][]): string[] => {
    const { table } = restartTable();
    for (const [id, permits, limit, token] of holders) {
      table.reclaim(
        makeClaim(id, [lockSpec("k", permits, limit)]),
        { owner: "owner" },
        { token, tokenCount: 1, remainingMs: TTL_MS },
      );
    }
    return [...table.records.keys()].sort();
  };
  // the one of limit 2 came first, though its token is the higher: it waited for another key
  expect(asserted(["reader", 1, ALL_PERMITS, 5], ["two", 2, 2, 9])).toEqual(["reader", "two"]);
  expect(asserted(["two", 2, 2, 9], ["reader", 1, ALL_PERMITS, 5])).toEqual(["reader", "two"]);
  expect(asserted(["two of two", 2, 2, 9], ["two of three", 2, 3, 5])).toEqual(["two of two"]);
  expect(asserted(["two of two", 2, 2, 5], ["two of three", 2, 3, 9])).toEqual(["two of three"]);
});

test("a holder displaced by an asserted one with a higher token is notified of its loss at once", () => {
  const fixture = restartTable();
  fixture.table.resumeGrants();
  fixture.claimState("newer", "k");
  const token = fixture.token("newer");
  fixture.table.pauseGrants();
  expect(
    fixture.table.reclaim(
      makeClaim("lower", "k"),
      { owner: "owner" },
      { token: token - 1, tokenCount: 1, remainingMs: TTL_MS },
    ),
  ).toBe(false);
  fixture.table.drainNotifications();
  expect(
    fixture.table.reclaim(
      makeClaim("higher", "k"),
      { owner: "owner" },
      { token: token + 1, tokenCount: 1, remainingMs: TTL_MS },
    ),
  ).toBe(true);
  expect(fixture.table.drainNotifications()).toMatchObject([
    { id: "newer", answer: { state: "none", reason: "expired" } },
  ]);
});

test("a paused claim that lacks only tokens is granted on resuming, not when the ceiling is raised", () => {
  const fixture = new TableFixture(new LockTable({ tokenCeiling: 0 }));
  expect(fixture.claimState("a", "k")).toBe("waiting");
  fixture.table.pauseGrants();
  fixture.table.raiseTokenCeiling(Number.POSITIVE_INFINITY);
  expect(fixture.collectGrants()).toEqual([]);
  expect(fixture.table.requiredTokenCeiling).toBeGreaterThan(0);
  fixture.table.resumeGrants();
  expect(fixture.collectGrants()).toEqual(["a"]);
});

test("whether a claim fits is computed from the free permits: waiters do not count, holders of any key do", () => {
  const fixture = new TableFixture();
  fixture.claimState("reader", [lockSpec("k", 1)]);
  fixture.claimState("writer", "k");
  const otherClaim = makeClaim("another", [lockSpec("k", 1), lockSpec("unused", 1)]);
  expect(fixture.table.fitsBesideHolders(otherClaim)).toBe(true);
  expect(fixture.table.canAdmitNow(otherClaim)).toBe(false);
  expect(fixture.table.fitsBesideHolders(makeClaim("exclusive", "unused k"))).toBe(false);
  fixture.table.pauseGrants();
  expect(fixture.table.fitsBesideHolders(otherClaim)).toBe(true);
  expect(fixture.table.canAdmitNow(makeClaim("new", "unused"))).toBe(false);
});
