import { expect, test } from "vitest";
import type { Observer } from "../../../src/lock-table/events.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import { makeClaim, SECOND_MS, TableFixture, TTL_MS } from "./table-fixture.ts";

/** A fixture whose observer records "event id" and, at a claim's end, how long it was held. */
function createObservedTable(): { readonly bench: TableFixture; readonly readEvents: () => string[] } {
  const events: string[] = [];
  const observer: Observer = {
    onEvent(kind, record, now) {
      const held = record.isHeld && kind !== "granted" ? ` after ${now - record.heldAt}` : "";
      events.push(`${kind} ${record.claim.id}${held}`);
    },
  };
  return { bench: new TableFixture(new LockTable({ observer })), readEvents: () => events.splice(0) };
}

test("an observer is notified of each step of a claim's life, and of how long it was held", () => {
  const { bench, readEvents } = createObservedTable();
  bench.advance(5);
  bench.claimState("a", "k");
  bench.claimState("b", "k");
  bench.claimState("once", "k", { wait: false });
  expect(readEvents()).toEqual(["granted a", "waiting b"]);
  bench.advance(7).release("a");
  expect(readEvents()).toEqual(["released a after 7", "granted b"]);
  bench.renew("b");
  expect(bench.release("a")).toBe(false);
  expect(readEvents()).toEqual([]);
});

test("the reason a claim ended is distinguished: released, expired, session ended", () => {
  const { bench, readEvents } = createObservedTable();
  bench.claimState("a", "k");
  bench.claimState("left", "k");
  bench.claimState("late", "k", { ttlMs: SECOND_MS });
  bench.release("left");
  bench.advance(SECOND_MS);
  readEvents();
  bench.table.expireNow("a", TTL_MS, { now: bench.now, micros: bench.wallMicros });
  expect(readEvents()).toEqual([`disconnected a after ${SECOND_MS}`]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "expired" });
  bench.table.expireNow("a", TTL_MS, { now: bench.now, micros: bench.wallMicros });
  bench.claimState("b", "k");
  bench.advance(TTL_MS);
  expect(readEvents()).toEqual(["granted b", `expired b after ${TTL_MS}`]);
});

test("an entry that is released or expires while waiting was never held", () => {
  const { bench, readEvents } = createObservedTable();
  bench.claimState("a", "k");
  bench.claimState("left", "k");
  bench.claimState("late", "k", { ttlMs: SECOND_MS });
  bench.release("left");
  bench.advance(SECOND_MS);
  expect(readEvents()).toEqual(["granted a", "waiting left", "waiting late", "withdrawn left", "expired late"]);
});

test("a revocation is reported when it is made, and the end of the entry later", () => {
  const { bench, readEvents } = createObservedTable();
  bench.claimState("a", "k");
  bench.revoke("k", bench.token("a"));
  bench.advance(2).release("a");
  bench.claimState("b", "k");
  bench.revoke("k", bench.token("b"), true);
  bench.claimState("c", "k");
  const record = bench.table.records.get("c");
  if (record !== undefined) bench.table.revokeForMaxHold(record, { now: bench.now, micros: bench.wallMicros });
  expect(readEvents()).toEqual([
    "granted a",
    "revoked a after 0",
    "released a after 2",
    "granted b",
    "removed b after 0",
    "granted c",
    "maxHoldExceeded c after 0",
  ]);
});

test("a hold asserted after a restart is reported, and the one it displaces is reported as expired", () => {
  const { bench, readEvents } = createObservedTable();
  bench.table.pauseGrants();
  bench.advance(0);
  bench.table.reclaim(
    makeClaim("low", "k"),
    { owner: "owner" },
    { token: bench.wallMicros - 2, tokenCount: 1, remainingMs: TTL_MS },
  );
  bench.table.reclaim(
    makeClaim("high", "k"),
    { owner: "owner" },
    { token: bench.wallMicros - 1, tokenCount: 1, remainingMs: TTL_MS },
  );
  expect(readEvents()).toEqual(["reclaimed low after 0", "reclaimed high after 0", "expired low after 0"]);
});

test("a claim blocked only by the token ceiling is reported as waiting, and as granted when the ceiling is raised", () => {
  const { bench, readEvents } = createObservedTable();
  bench.table.raiseTokenCeiling(0);
  bench.claimState("a", "k");
  bench.claimState("once", "k2", { wait: false });
  expect(readEvents()).toEqual(["waiting a"]);
  bench.table.raiseTokenCeiling(Number.POSITIVE_INFINITY);
  expect(readEvents()).toEqual(["granted a"]);
});
