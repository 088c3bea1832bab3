import { expect, test } from "vitest";
import { EventHistory } from "../../../../src/gateway/dashboard/event-history.ts";
import { SampleHistory } from "../../../../src/gateway/dashboard/sample-history.ts";
import type { Listing } from "../../../../src/gateway/dashboard/store-sampler.ts";
import type { DashboardEvent } from "../../../../src/gateway/dashboard/view-types.ts";
import { toVisibleEvents } from "../../../../src/gateway/dashboard/visible-events.ts";
import type { ServerEvent } from "../../../../src/protocol/admin-frames.ts";
import type { ClaimView } from "../../../../src/spi/driver.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { createTestAccess, testAccount } from "../../../support/test-accounts.ts";
import { makeHolder, makeWaiter } from "../../cli/claim-views.ts";

let sequence = 0;

function makeListing(views: readonly ClaimView[], isComplete = true): Listing {
  sequence++;
  return { sequence, readAt: 0, views, isComplete };
}

function reported(kind: string, tag: string, at: number): ServerEvent {
  return { seq: 1, at, kind, keys: ["k"], tag, label: "ana", account: "", token: 7n };
}

const summary = (events: readonly DashboardEvent[]): string[] =>
  events.map(({ kind, tag, source }) => `${kind} ${tag} ${source}`);

test("what consecutive lists differ by is recorded with the next list", () => {
  const history = new EventHistory(() => 5);
  const [a, b] = [makeHolder("a", { tag: "aaaaaaaaaa" }), makeWaiter("a", { tag: "bbbbbbbbbb" })];
  history.addListing(makeListing([]));
  history.addListing(makeListing([a, b]));
  expect(history.after(0)).toEqual([]);
  history.addListing(makeListing([makeHolder("a", { tag: "bbbbbbbbbb" })]));
  expect(summary(history.after(0))).toEqual(["granted aaaaaaaaaa sampled", "waiting bbbbbbbbbb sampled"]);
  history.addListing(makeListing([]));
  history.addListing(makeListing([]));
  expect(summary(history.after(2))).toEqual([
    "ended aaaaaaaaaa sampled",
    "granted bbbbbbbbbb sampled",
    "ended bbbbbbbbbb sampled",
  ]);
  expect(history.after(0)[0]).toMatchObject({ keys: ["a"], token: "1800000000000000", at: 5, sequence: 1 });
  expect([history.grantCount, history.endCount]).toEqual([2, 2]);
});

test("a waiter that is in the list no more has left: it may have had the lock between two lists", () => {
  const history = new EventHistory(() => 5);
  for (const views of [[], [makeWaiter("k", { tag: "cccccccccc" })], [], []]) history.addListing(makeListing(views));
  expect(summary(history.after(0))).toEqual(["waiting cccccccccc sampled", "left cccccccccc sampled"]);
  expect([history.grantCount, history.endCount]).toEqual([0, 0]);
});

test("a claim that was reported is not recorded from lists too, also if it was reported later than listed", () => {
  const history = new EventHistory(() => 5);
  const holder = makeHolder("k", { tag: "aaaaaaaaaa" });
  history.addListing(makeListing([]));
  history.addListing(makeListing([holder]));
  history.addReported([reported("granted", "aaaaaaaaaa", 10)], false);
  history.addListing(makeListing([holder]));
  history.addListing(makeListing([]));
  history.addReported([reported("released", "aaaaaaaaaa", 20)], false);
  history.addListing(makeListing([]));
  history.addListing(makeListing([]));
  expect(summary(history.after(0))).toEqual(["granted aaaaaaaaaa reported", "released aaaaaaaaaa reported"]);
});

test("lists that are not complete, or that failed, say nothing", () => {
  const history = new EventHistory(() => 5);
  const views = [makeHolder("k")];
  for (const listing of [makeListing([]), makeListing(views, false), makeListing([]), null, makeListing(views)])
    history.addListing(listing);
  history.addListing(makeListing(views));
  expect(history.after(0)).toEqual([]);
});

test("times of waiting and of holding, of claims that were reported", () => {
  const history = new EventHistory(() => 5);
  expect([history.waits, history.holds]).toEqual([null, null]);
  const events = [
    reported("waiting", "a", 0),
    reported("granted", "a", 50),
    reported("granted", "b", 60),
    reported("released", "a", 90),
  ];
  history.addReported(events, false);
  history.addReported([reported("expired", "b", 1_000_000), reported("withdrawn", "c", 1)], false);
  const bucketsOf = (counts: readonly number[] = []): number[] =>
    counts.flatMap((count, bucket) => Array<number>(count).fill(bucket));
  expect(bucketsOf(history.waits?.counts)).toEqual([0, 4]);
  expect(bucketsOf(history.holds?.counts)).toEqual([4, 12]);
});

test("the last 10,000 events are kept, with the time since when none is missing", () => {
  const history = new EventHistory(() => 7);
  let notifications = 0;
  const subscription = history.subscribe(() => notifications++);
  history.addReported(
    Array.from({ length: 10_003 }, (_, index) => reported("granted", `t${index}`, index)),
    false,
  );
  expect(history.after(0)).toHaveLength(10_000);
  expect(history.after(10_001).map((event) => event.sequence)).toEqual([10_002, 10_003]);
  expect(history.since).toBe(7);
  subscription[Symbol.dispose]();
  history.addReported([reported("released", "t1", 20_000)], true);
  expect(notifications).toBe(1);
});

test("a revocation through the pages is recorded once, and the end of its claim as well", () => {
  const history = new EventHistory(() => 5);
  const holder = makeHolder("k", { tag: "a" });
  for (const views of [[], [holder]]) history.addListing(makeListing(views));
  history.addReported([reported("granted", "a", 10)], false);
  const { seq: _, token, ...event } = reported("revoked", "a", 20);
  history.addRevocation({ ...event, token: String(token), source: "reported", reason: "test" });
  history.addReported([reported("revoked", "a", 20)], false);
  for (const views of [[holder], [], [], []]) history.addListing(makeListing(views));
  for (const views of [[], [], []]) history.addListing(makeListing(views));
  const kinds = history.after(0).map(({ kind, reason }) => [kind, reason]);
  expect(kinds.slice(0, 2)).toEqual([
    ["granted", undefined],
    ["revoked", "test"],
  ]);
  expect(kinds.filter(([kind]) => kind === "revoked")).toHaveLength(1);
});

test("a lock server reports everything: nothing is taken from lists, and nothing is remembered for them", () => {
  const history = new EventHistory(() => 5);
  history.origin = "server";
  for (const views of [[], [makeHolder("k")], [], []]) history.addListing(makeListing(views));
  expect(history.after(0)).toEqual([]);
  const { tag, ...rest } = reported("revoked", "a", 1);
  history.addRevocation({ ...rest, tag, token: "7", source: "reported" });
  expect(history.after(0)).toEqual([]);
});

test("after a list that failed, no event says what happened meanwhile, and the history begins again", () => {
  let now = 5;
  const history = new EventHistory(() => now);
  for (const listing of [makeListing([]), makeListing([]), null]) history.addListing(listing);
  now = 50;
  history.addListing(makeListing([makeHolder("k")]));
  history.addListing(makeListing([makeHolder("k")]));
  expect([history.after(0), history.since]).toEqual([[], 50]);
});

test("a viewer sees only the events of keys that the account may see, and only those keys", () => {
  const access = createTestAccess(testAccount("ana", "a/", ["inspect"]));
  const history = new EventHistory(() => 5);
  history.addReported(
    [
      { ...reported("granted", "x", 1), keys: ["a/1", "b/1"] },
      { ...reported("granted", "y", 1), keys: ["b/2"] },
    ],
    false,
  );
  const events = history.after(0);
  const ana = access.forAccount("ana");
  expect(toVisibleEvents(events, ana).map(({ keys }) => keys)).toEqual([["a/1"]]);
  expect(toVisibleEvents(events, ana, "b/1")).toEqual([]);
  expect(toVisibleEvents(events, ana, "a/1")).toHaveLength(1);
});

test("a sample of the figures with each list, and per second what was recorded since the last one", () => {
  const clock = new FakeClock();
  const counts = { grantCount: 0, endCount: 0 };
  const history = new SampleHistory(clock, counts);
  clock.jump(2_000);
  counts.grantCount = 10;
  history.add(makeListing([makeHolder("k"), makeWaiter("k"), makeWaiter("k", { ageMs: 9_000 })]));
  clock.jump(4_000);
  counts.endCount = 8;
  history.add(null);
  expect(history.samples).toEqual([
    { at: clock.wall() - 4_000, held: 1, waiting: 2, longestWaitMs: 9_000, grantsPerSecond: 5, endsPerSecond: 0 },
    { at: clock.wall(), held: null, waiting: null, longestWaitMs: null, grantsPerSecond: 0, endsPerSecond: 2 },
  ]);
  for (let count = 0; count < 2_000; count++) history.add(null);
  expect(history.samples).toHaveLength(1_800);
});
