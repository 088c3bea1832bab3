import { expect, test } from "vitest";
import type { ClaimLifecycle, EventBatch, EventKind } from "../../../../src/server/events/event-log.ts";
import { EventLog } from "../../../../src/server/events/event-log.ts";
import type { Clock } from "../../../../src/util/clock.ts";
import { publicTag } from "../../../../src/util/ids.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const MATCH_ALL = { prefix: "", canSee: () => true };

/** A claim of these keys that was placed at 1,000 and granted at 1,250. */
function claimLifecycle(id: string, keys: string, token: number | bigint = 0): ClaimLifecycle {
  const lockSpecs = keys.split(" ").map((key) => ({ key, permits: 1, limit: 1 }));
  return {
    claim: {
      id,
      locks: lockSpecs as unknown as ClaimLifecycle["claim"]["locks"],
      ttlMs: 1_000,
      tokenCount: 1,
      floor: 0n,
      wait: true,
      label: `label of ${id}`,
    },
    token,
    placedAt: 1_000,
    heldAt: 1_250,
    account: "team",
  };
}

test("the last events of a key are listed in order, without ids, with the time of day", () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock });
  eventLog.onEvent("granted", claimLifecycle("a", "k", 7), 1_000);
  eventLog.onEvent("granted", claimLifecycle("b", "other", 8), 1_000);
  eventLog.onEvent("waiting", claimLifecycle("c", "k"), 1_000);
  eventLog.onEvent("revoked", claimLifecycle("a", "k", 7), 1_000);
  eventLog.annotateLast("ops", "stuck");
  eventLog.onEvent("released", claimLifecycle("a", "k", 7), 1_000);
  const events = eventLog.history("k", 10, () => true);
  expect(events.map(({ seq, kind, token }) => [seq, kind, token])).toEqual([
    [1, "granted", 7n],
    [3, "waiting", undefined],
    [4, "revoked", 7n],
    [5, "released", 7n],
  ]);
  expect(events[2]).toEqual({
    seq: 4,
    at: clock.wall(),
    kind: "revoked",
    keys: ["k"],
    tag: publicTag("a"),
    label: "label of a",
    token: 7n,
    account: "team",
    operator: "ops",
    reason: "stuck",
  });
  expect(eventLog.history("k", 2, () => true).map(({ seq }) => seq)).toEqual([4, 5]);
});

test("an event's time of day is the same whenever it is read, unless the clock was set", () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock });
  eventLog.onEvent("granted", claimLifecycle("a", "k", 1), clock.now());
  const readTime = (): number | undefined => eventLog.history("k", 1, () => true)[0]?.at;
  const first = readTime();
  clock.wallOffsetMs += 7;
  expect(readTime()).toBe(first);
  clock.wallOffsetMs += 3_600_000;
  expect(readTime()).toBe((first as number) + 3_600_007);
});

test("events that leave the ring are forgotten, rare ones later than common ones", () => {
  const eventLog = new EventLog({ clock: new FakeClock(), capacity: 8 });
  eventLog.onEvent("expired", claimLifecycle("dead", "k", 1), 0);
  for (let turn = 0; turn < 100; turn++) eventLog.onEvent("released", claimLifecycle("x", "k", 2), 0);
  const events = eventLog.history("k", 100, () => true);
  expect(events.map(({ seq }) => seq)).toEqual([1, 94, 95, 96, 97, 98, 99, 100, 101]);
  expect([eventLog.count("expired"), eventLog.count("released")]).toEqual([1, 100]);
});

test("claims of many keys fill the ring sooner, which bounds its memory", () => {
  const eventLog = new EventLog({ clock: new FakeClock(), capacity: 8 });
  const keys = Array.from({ length: 10 }, (_, index) => `k${index}`).join(" ");
  for (let turn = 0; turn < 8; turn++) eventLog.onEvent("granted", claimLifecycle("x", keys, 1), 0);
  expect(eventLog.history("k0", 100, () => true).map(({ seq }) => seq)).toEqual([8]);
});

test("a token beyond the safe integers is shown unchanged", () => {
  const eventLog = new EventLog({ clock: new FakeClock(), capacity: 4 });
  eventLog.onEvent("granted", claimLifecycle("a", "k", 2n ** 62n), 0);
  expect(eventLog.history("k", 1, () => true)[0]?.token).toBe(2n ** 62n);
  for (let turn = 0; turn < 4; turn++) eventLog.onEvent("granted", claimLifecycle("b", "k", 3), 0);
  expect(eventLog.history("k", 9, () => true).map(({ token }) => token)).toEqual([3n, 3n, 3n, 3n]);
});

test("events that a reader may not see are filtered out before the limit applies", () => {
  const eventLog = new EventLog({ clock: new FakeClock() });
  const canSee = (key: string): boolean => key.startsWith("mine/");
  for (let turn = 0; turn < 5; turn++) eventLog.onEvent("granted", claimLifecycle("b", "theirs/k", 1), 0);
  eventLog.onEvent("granted", claimLifecycle("a", "mine/k theirs/k", 2), 0);
  expect(eventLog.history("theirs/k", 9, canSee)).toEqual([]);
  expect(eventLog.history("mine/k", 9, canSee).map(({ keys }) => keys)).toEqual([["mine/k"]]);
  expect(eventLog.since(0, 1, { prefix: "", canSee }).events.map(({ seq }) => seq)).toEqual([6]);
  expect(eventLog.since(0, 9, { prefix: "theirs/", canSee })).toEqual({ events: [], hasGap: false });
});

test("a reader that continues from a number is notified if events before it are lost", () => {
  const eventLog = new EventLog({ clock: new FakeClock(), capacity: 4 });
  for (let turn = 0; turn < 6; turn++) eventLog.onEvent("granted", claimLifecycle("b", "k", 1), 0);
  expect(eventLog.since(0, 9, MATCH_ALL)).toMatchObject({ hasGap: true, events: [{ seq: 3 }, {}, {}, { seq: 6 }] });
  expect(eventLog.since(2, 2, MATCH_ALL)).toMatchObject({ hasGap: false, events: [{ seq: 3 }, { seq: 4 }] });
  expect(eventLog.since(6, 2, MATCH_ALL)).toEqual({ hasGap: false, events: [] });
});

test("subscribers receive the events they follow in batches, until they unsubscribe", async () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock });
  const batches: EventBatch[] = [];
  const following = eventLog.subscribe({ prefix: "a", canSee: (key) => key !== "a2" }, (batch) => {
    batches.push(batch);
    return true;
  });
  eventLog.onEvent("granted", claimLifecycle("x", "b1", 1), clock.now());
  await clock.advance(100);
  expect(batches).toEqual([]);
  for (const key of ["a1", "a2", "b1", "a1"]) eventLog.onEvent("granted", claimLifecycle("x", key, 1), clock.now());
  await clock.advance(100);
  expect(batches).toMatchObject([{ hasGap: false, events: [{ keys: ["a1"] }, { keys: ["a1"] }] }]);
  following[Symbol.dispose]();
  eventLog.onEvent("granted", claimLifecycle("x", "a1", 1), clock.now());
  await clock.advance(100);
  expect([batches.length, eventLog.subscriberCount, clock.pendingTimers]).toEqual([1, 0, 0]);
});

test("a subscriber that resumes receives the events it has missed, in batches", async () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock });
  for (let turn = 0; turn < 1_200; turn++) eventLog.onEvent("granted", claimLifecycle("x", "k", 1), clock.now());
  const sizes: number[] = [];
  using _ = eventLog.subscribe(MATCH_ALL, ({ events, hasGap }) => sizes.push(hasGap ? -1 : events.length) > 0, 100);
  await clock.advance(1_000);
  expect(sizes).toEqual([500, 500, 100]);
});

test("a busy server loses no event of a quiet key, and reports lost events to a subscriber of all keys", async () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock, capacity: 1_024 });
  const filteredBatches: EventBatch[] = [];
  const allBatches: EventBatch[] = [];
  using _one = eventLog.subscribe({ prefix: "quiet", canSee: () => true }, (batch) => filteredBatches.push(batch) > 0);
  using _two = eventLog.subscribe(MATCH_ALL, (batch) => allBatches.push(batch) > 0);
  eventLog.onEvent("granted", claimLifecycle("x", "quiet", 1), clock.now());
  for (let turn = 0; turn < 5_000; turn++) eventLog.onEvent("granted", claimLifecycle("y", "busy", 1), clock.now());
  eventLog.onEvent("released", claimLifecycle("x", "quiet", 1), clock.now());
  await clock.advance(1_000);
  expect(filteredBatches).toMatchObject([{ hasGap: false, events: [{ kind: "granted" }, { kind: "released" }] }]);
  expect(allBatches[0]?.events).toHaveLength(500);
  expect(allBatches.some(({ hasGap }) => hasGap)).toBe(true);
  expect(allBatches.at(-1)?.events.at(-1)).toMatchObject({ kind: "released" });
});

test("a subscriber that cannot take more is closed, the others are not", async () => {
  const clock = new FakeClock();
  const eventLog = new EventLog({ clock });
  let callCount = 0;
  eventLog.subscribe(MATCH_ALL, () => false);
  eventLog.subscribe(MATCH_ALL, () => ++callCount > 0);
  for (let turn = 0; turn < 2; turn++) {
    eventLog.onEvent("granted", claimLifecycle("x", "k", 1), clock.now());
    await clock.advance(100);
  }
  expect([callCount, eventLog.subscriberCount]).toEqual([2, 1]);
  eventLog.close();
  eventLog.onEvent("granted", claimLifecycle("x", "k", 1), clock.now());
  await clock.advance(100);
  expect([callCount, eventLog.subscriberCount]).toEqual([2, 0]);
});

test("any number of subscribers is served in time slices between requests, each in its turn", () => {
  let now = 0;
  let run = (): void => undefined;
  let runsAt = Number.POSITIVE_INFINITY;
  // each look at the clock advances it
  const clock: Clock = {
    now: () => ++now,
    wall: () => now,
    uptime: () => now,
    timer(onTimer) {
      run = onTimer;
      return {
        set: (time) => {
          runsAt = time ?? Number.POSITIVE_INFINITY;
        },
        keepAlive: () => undefined,
        stop: () => undefined,
      };
    },
  };
  const eventLog = new EventLog({ clock, capacity: 8 });
  const counts = Array.from({ length: 100 }, () => 0);
  let looks = 0;
  for (const at of counts.keys()) {
    const canSee = (): boolean => ++looks > 0;
    eventLog.subscribe({ prefix: "", canSee }, () => ++(counts[at] as number) > 0);
  }
  for (let n = 0; n < 3; n++) eventLog.onEvent("granted", claimLifecycle(`${n}`, "k", n + 1), now);
  // a scan of all would be 300 steps, and reporting each event again as many
  expect(looks).toBeGreaterThan(0);
  expect(looks).toBeLessThan(50);
  const addedAt = now;
  let busyMs = 0;
  while (Number.isFinite(runsAt)) {
    now = Math.max(now, runsAt);
    runsAt = Number.POSITIVE_INFINITY;
    const startedAt = now;
    run();
    busyMs += now - startedAt;
  }
  expect(counts.filter((times) => times === 0)).toEqual([]);
  // half of the time is theirs, no less: the pauses are as long as the slices
  expect(busyMs / (now - addedAt)).toBeGreaterThan(0.4);
  expect(busyMs / (now - addedAt)).toBeLessThan(0.6);
});

test("the number of subscribers is bounded", () => {
  const eventLog = new EventLog({ clock: new FakeClock() });
  const subscribe = (account: string): Disposable => eventLog.subscribe({ ...MATCH_ALL, account }, () => true);
  const ofAna = Array.from({ length: 250 }, () => subscribe("ana"));
  expect(() => subscribe("ana")).toThrow("at most 250 event subscribers of one account");
  // without accounts there is no such limit
  for (let count = 0; count < 750; count++) subscribe("");
  expect(() => subscribe("ben")).toThrow(expect.objectContaining({ code: "LIMIT" }));
  ofAna[0]?.[Symbol.dispose]();
  subscribe("ana");
});

test("wait and hold durations are measured, and held claims are counted", () => {
  const eventLog = new EventLog({ clock: new FakeClock() });
  const kinds: readonly EventKind[] = ["waiting", "granted", "revoked", "maxHoldExceeded"];
  for (const kind of kinds) eventLog.onEvent(kind, claimLifecycle("a", "k", kind === "waiting" ? 0 : 1), 1_250);
  eventLog.onEvent("reclaimed", claimLifecycle("b", "k", 2), 1_250);
  expect([eventLog.heldCount, eventLog.waitTimes.sumMs]).toEqual([2, 250]);
  eventLog.onEvent("withdrawn", claimLifecycle("c", "k"), 3_000);
  eventLog.onEvent("released", claimLifecycle("a", "k", 1), 3_250);
  eventLog.onEvent("expired", claimLifecycle("b", "k", 2), 1_250);
  expect([eventLog.heldCount, eventLog.holdTimes.sumMs]).toEqual([0, 2_000]);
});
