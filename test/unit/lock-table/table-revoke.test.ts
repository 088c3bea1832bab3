import { expect, test } from "vitest";
import type { ClaimRecord, QueueEntry } from "../../../src/lock-table/key-queue.ts";
import { lockSpec, makeClaim, SECOND_MS, TableFixture, TTL_MS } from "./table-fixture.ts";

test("a revoked claim cannot be renewed but keeps its entry until it is released", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("b", "k");
  expect(fixture.revoke("k", fixture.token("a"))).toBe(true);
  expect(fixture.revoked, "its owner is told").toEqual(["a"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "revoked" });
  expect(fixture.claim(makeClaim("a", "k"))).toEqual({ state: "none", reason: "revoked" });
  expect(fixture.granted).toEqual([]);
  expect(fixture.revoke("k", fixture.token("a"))).toBe(false);
  expect(fixture.release("a")).toBe(false);
  expect(fixture.granted).toEqual(["b"]);
});

test("a revoked claim's entry ends with its lease, and its end reason is still known", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.revoke("k", fixture.token("a"));
  fixture.advance(20 * SECOND_MS).renew("a");
  fixture.claimState("b", "k");
  fixture.advance(10 * SECOND_MS);
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "revoked" });
});

test("a claim revoked with `now` ends at once", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("b", "k");
  expect(fixture.revoke("k", fixture.token("a"), true)).toBe(true);
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "revoked" });
});

test("waiters that are removed together are told, and none of them is admitted by the removal of another", () => {
  const fixture = new TableFixture();
  const reader = [lockSpec("k", 1, 2)];
  fixture.claimState("reader", reader);
  fixture.claimState("writer", "k");
  fixture.claimState("behind", reader);
  fixture.claimState("parked", "k");
  fixture.claimState("last", "k");
  fixture.table.suspendWaiter("parked");
  const removed = ["writer", "behind", "parked"].map((id) => fixture.table.records.get(id) as ClaimRecord);
  fixture.table.removeWaiters(removed);
  fixture.advance(0);
  expect([fixture.revoked, fixture.granted]).toEqual([["writer", "behind", "parked"], []]);
  expect(fixture.renew("behind")).toEqual({ state: "none", reason: "revoked" });
  fixture.release("reader");
  expect(fixture.granted).toEqual(["last"]);
});

test("revoking finds holders only, by key and token", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("b", "k");
  expect([fixture.revoke("k", 0), fixture.revoke("k", 1), fixture.revoke("x", fixture.token("a"))]).toEqual([
    false,
    false,
    false,
  ]);
});

const LARGE_COUNT = 1_000_000;
const sharedSpec = [lockSpec("k", 1, LARGE_COUNT)];

test("a holder is found by its token without a walk through all holders", () => {
  const fixture = new TableFixture();
  for (let index = 0; index < 500; index++)
    fixture.claimState(`h${index}`, sharedSpec, { tokenCount: 1 + (index % 5) });
  // the first look-up walks through all holders
  expect(fixture.revoke("k", 1)).toBe(false);
  const { entries } = fixture.table.queues.get("k") as { entries: { first: QueueEntry | null } };
  const first = entries.first;
  let walks = 0;
  Object.defineProperty(entries, "first", {
    configurable: true,
    get: () => {
      walks++;
      return first;
    },
  });
  for (let index = 499; index >= 250; index -= 50) {
    expect(fixture.revoke("k", fixture.token(`h${index}`) + (index % 5))).toBe(true);
    expect(fixture.renew(`h${index}`)).toEqual({ state: "none", reason: "revoked" });
    expect(fixture.revoke("k", fixture.token(`h${index}`) + (index % 5) + 1_000_000)).toBe(false);
  }
  expect(walks).toBe(0);
});

test("later holders are found as well, and no longer after their end", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.revoke("k", 1);
  fixture.claimState("b", "k", { tokenCount: 7 });
  fixture.release("a");
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.revoke("k", fixture.token("a"))).toBe(false);
  expect(fixture.revoke("k", fixture.token("b") + 7)).toBe(false);
  expect(fixture.revoke("k", fixture.token("b") + 6, true)).toBe(true);
  expect(fixture.revoke("k", fixture.token("b"))).toBe(false);
});

test("one of several asserted holders that share a token can be revoked", () => {
  const fixture = new TableFixture();
  const { table } = fixture;
  table.pauseGrants();
  fixture.claimState("other", "other");
  expect(fixture.revoke("k", 500)).toBe(false);
  for (const id of ["a", "b", "c"]) {
    expect(
      table.reclaim(
        makeClaim(id, sharedSpec, { tokenCount: 3 }),
        { owner: "owner" },
        { token: 500, tokenCount: 3, remainingMs: TTL_MS },
      ),
    ).toBe(true);
  }
  for (let turn = 0; turn < 3; turn++) expect(fixture.revoke("k", 501)).toBe(true);
  expect(fixture.revoke("k", 501)).toBe(false);
  expect(fixture.revoked.sort()).toEqual(["a", "b", "c"]);
  for (let turn = 0; turn < 3; turn++) expect(fixture.revoke("k", 502, true)).toBe(true);
  expect(fixture.revoke("k", 502, true)).toBe(false);
  expect(table.records.size).toBe(1);
});

test("a detached claim ends at its set time, whatever is waiting, unless it is renewed", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("b", "k");
  fixture.claimState("c", "other");
  expect([fixture.detach("a", 2 * SECOND_MS), fixture.detach("c", 2 * SECOND_MS)]).toEqual([true, true]);
  expect(fixture.table.nextDueAt()).toBeLessThanOrEqual(fixture.now + 2 * SECOND_MS);
  fixture.advance(2 * SECOND_MS - 1);
  expect(fixture.granted).toEqual([]);
  expect(fixture.renew("c", "other")).toMatchObject({ state: "held", remainingMs: TTL_MS });
  fixture.advance(1);
  expect(fixture.granted).toEqual(["b"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "expired" });
});

test("the first claim that waits for a lease that was cut short is to be asked again, and no other", () => {
  const fixture = new TableFixture();
  for (const id of ["a", "b", "c"]) fixture.claimState(id, "k");
  fixture.claimState("alone", "other");
  const detach = (id: string, ms: number): unknown => {
    fixture.detach(id, ms);
    return fixture.table.drainNotifications();
  };
  expect(detach("a", 2 * TTL_MS)).toEqual([]);
  expect(detach("a", SECOND_MS)).toEqual([{ id: "b", owner: "owner", answer: "recheck" }]);
  expect(detach("alone", SECOND_MS)).toEqual([]);
});

test("the remaining time of a detached claim is at most its own lease", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  expect(fixture.detach("a", 2 * TTL_MS)).toBe(true);
  fixture.claimState("b", "k");
  fixture.advance(TTL_MS - 1).renew("b");
  expect(fixture.granted).toEqual([]);
  fixture.advance(1);
  expect(fixture.granted).toEqual(["b"]);
});

test("a detached claim has a full lease, no owner, and is remembered after its release", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.advance(10 * SECOND_MS);
  expect(fixture.detach("a")).toBe(true);
  expect(fixture.table.records.get("a")?.owner).toBeNull();
  expect(fixture.renew("a", "other")).toMatchObject({ state: "held", remainingMs: TTL_MS });
  expect(fixture.table.records.get("a")?.owner).toBeNull();
  fixture.advance(SECOND_MS);
  expect(fixture.release("a")).toBe(true);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "released" });
});

test("only a held claim with a ttl, not revoked, can be detached", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  fixture.claimState("waits", "k");
  fixture.claimState("session", "k2", { ttlMs: "session" });
  fixture.revoke("k", fixture.token("a"));
  expect(["a", "waits", "session", "gone"].map((id) => fixture.detach(id))).toEqual([false, false, false, false]);
});

test("a claim held for longer than allowed is revoked once, and not after its end", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k");
  const recordA = fixture.table.records.get("a");
  if (recordA === undefined) throw new Error("a is not there");
  const outstays = (): void => {
    fixture.table.revokeForMaxHold(recordA, { now: fixture.now, micros: fixture.wallMicros });
    fixture.collectGrants();
  };
  outstays();
  expect(fixture.revoked, "its owner is told").toEqual(["a"]);
  expect(fixture.renew("a")).toEqual({ state: "none", reason: "maxHold" });
  outstays();
  expect(fixture.revoked, "once").toEqual(["a"]);
  fixture.release("a");
  fixture.claimState("a", "k");
  outstays();
  expect(fixture.revoked, "another claim by that id is not meant").toEqual(["a"]);
});

test("of reclaimed readers whose token ranges overlap, the one with the higher first token is found", () => {
  const fixture = new TableFixture();
  fixture.table.pauseGrants();
  const reclaim = (id: string, token: number, tokenCount: number): boolean =>
    fixture.table.reclaim(makeClaim(id, sharedSpec), { owner: "owner" }, { token, tokenCount, remainingMs: TTL_MS });
  expect([reclaim("low", 100, 10), reclaim("high", 105, 2), reclaim("lowest", 50, 60)]).toEqual([true, true, true]);
  for (const [token, id] of [
    [106, "high"],
    [103, "low"],
    [99, "lowest"],
  ] as const) {
    expect(fixture.revoke("k", token)).toBe(true);
    expect(fixture.revoked.at(-1)).toBe(id);
  }
});
