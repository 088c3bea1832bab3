import { expect, test } from "vitest";
import type { Clock } from "../../src/clock.ts";
import { tagOf } from "../../src/ids.ts";
import type { Batch, Happening, Lived } from "../../src/server/record.ts";
import { Record } from "../../src/server/record.ts";
import { fakeClock } from "../support/fake-clock.ts";

const EVERYTHING = { prefix: "", may: () => true };

/** A claim of these keys that was placed at 1,000 and granted at 1,250. */
function life(id: string, keys: string, token: number | bigint = 0): Lived {
  const holds = keys.split(" ").map((key) => ({ key, permits: 1, limit: 1 }));
  return {
    claim: {
      id,
      holds: holds as unknown as Lived["claim"]["holds"],
      ttlMs: 1_000,
      tokens: 1,
      floor: 0n,
      wait: true,
      label: `label of ${id}`,
    },
    token,
    placedAt: 1_000,
    heldAt: 1_250,
    by: "team",
  };
}

test("the last events of a key stand in order, without ids, with the time of day", () => {
  const clock = fakeClock();
  const record = new Record({ clock });
  record.happened("granted", life("a", "k", 7), 1_000);
  record.happened("granted", life("b", "other", 8), 1_000);
  record.happened("waiting", life("c", "k"), 1_000);
  record.happened("revoked", life("a", "k", 7), 1_000);
  record.explain("ops", "stuck");
  record.happened("released", life("a", "k", 7), 1_000);
  const events = record.last("k", 10, () => true);
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
    tag: tagOf("a"),
    label: "label of a",
    token: 7n,
    by: "team",
    operator: "ops",
    reason: "stuck",
  });
  expect(record.last("k", 2, () => true).map(({ seq }) => seq)).toEqual([4, 5]);
});

test("an event's time of day is the same whenever it is read, unless the clock was set", () => {
  const clock = fakeClock();
  const record = new Record({ clock });
  record.happened("granted", life("a", "k", 1), clock.now());
  const at = (): number | undefined => record.last("k", 1, () => true)[0]?.at;
  const first = at();
  clock.setWall(7);
  expect(at()).toBe(first);
  clock.setWall(3_600_000);
  expect(at()).toBe((first as number) + 3_600_007);
});

test("events older than the ring are forgotten, the rare ones later than the common ones", () => {
  const record = new Record({ clock: fakeClock(), size: 8 });
  record.happened("expired", life("dead", "k", 1), 0);
  for (let turn = 0; turn < 100; turn++) record.happened("released", life("x", "k", 2), 0);
  const events = record.last("k", 100, () => true);
  expect(events.map(({ seq }) => seq)).toEqual([1, 94, 95, 96, 97, 98, 99, 100, 101]);
  expect([record.count("expired"), record.count("released")]).toEqual([1, 100]);
});

test("claims of many keys fill the ring sooner, so that what it keeps alive stays small", () => {
  const record = new Record({ clock: fakeClock(), size: 8 });
  const keys = Array.from({ length: 10 }, (_, at) => `k${at}`).join(" ");
  for (let turn = 0; turn < 8; turn++) record.happened("granted", life("x", keys, 1), 0);
  expect(record.last("k0", 100, () => true).map(({ seq }) => seq)).toEqual([8]);
});

test("a token that no number can hold is shown as it is", () => {
  const record = new Record({ clock: fakeClock(), size: 4 });
  record.happened("granted", life("a", "k", 2n ** 62n), 0);
  expect(record.last("k", 1, () => true)[0]?.token).toBe(2n ** 62n);
  for (let turn = 0; turn < 4; turn++) record.happened("granted", life("b", "k", 3), 0);
  expect(record.last("k", 9, () => true).map(({ token }) => token)).toEqual([3n, 3n, 3n, 3n]);
});

test("what a reader may not see is not there: filtered before anything is cut", () => {
  const record = new Record({ clock: fakeClock() });
  const may = (key: string): boolean => key.startsWith("mine/");
  for (let turn = 0; turn < 5; turn++) record.happened("granted", life("b", "theirs/k", 1), 0);
  record.happened("granted", life("a", "mine/k theirs/k", 2), 0);
  expect(record.last("theirs/k", 9, may)).toEqual([]);
  expect(record.last("mine/k", 9, may).map(({ keys }) => keys)).toEqual([["mine/k"]]);
  expect(record.since(0, 1, { prefix: "", may }).events.map(({ seq }) => seq)).toEqual([6]);
  expect(record.since(0, 9, { prefix: "theirs/", may })).toEqual({ events: [], gap: false });
});

test("a reader that asks on from a number is told when something before it is lost", () => {
  const record = new Record({ clock: fakeClock(), size: 4 });
  for (let turn = 0; turn < 6; turn++) record.happened("granted", life("b", "k", 1), 0);
  expect(record.since(0, 9, EVERYTHING)).toMatchObject({ gap: true, events: [{ seq: 3 }, {}, {}, { seq: 6 }] });
  expect(record.since(2, 2, EVERYTHING)).toMatchObject({ gap: false, events: [{ seq: 3 }, { seq: 4 }] });
  expect(record.since(6, 2, EVERYTHING)).toEqual({ gap: false, events: [] });
});

test("subscribers are told in batches, only of what they follow, until they leave", async () => {
  const clock = fakeClock();
  const record = new Record({ clock });
  const batches: Batch[] = [];
  const following = record.subscribe({ prefix: "a", may: (key) => key !== "a2" }, (batch) => {
    batches.push(batch);
    return true;
  });
  record.happened("granted", life("x", "b1", 1), clock.now());
  await clock.pass(100);
  expect(batches).toEqual([]);
  for (const key of ["a1", "a2", "b1", "a1"]) record.happened("granted", life("x", key, 1), clock.now());
  await clock.pass(100);
  expect(batches).toMatchObject([{ gap: false, events: [{ keys: ["a1"] }, { keys: ["a1"] }] }]);
  following[Symbol.dispose]();
  record.happened("granted", life("x", "a1", 1), clock.now());
  await clock.pass(100);
  expect([batches.length, record.subscribers, clock.pending]).toEqual([1, 0, 0]);
});

test("a subscriber that resumes gets what it has missed, in turns", async () => {
  const clock = fakeClock();
  const record = new Record({ clock });
  for (let turn = 0; turn < 1_200; turn++) record.happened("granted", life("x", "k", 1), clock.now());
  const sizes: number[] = [];
  using _ = record.subscribe(EVERYTHING, ({ events, gap }) => sizes.push(gap ? -1 : events.length) > 0, 100);
  await clock.pass(1_000);
  expect(sizes).toEqual([500, 500, 100]);
});

test("a busy server loses nothing for a subscriber of a quiet key, and tells one of everything what is lost", async () => {
  const clock = fakeClock();
  const record = new Record({ clock, size: 1_024 });
  const quiet: Batch[] = [];
  const all: Batch[] = [];
  using _one = record.subscribe({ prefix: "quiet", may: () => true }, (batch) => quiet.push(batch) > 0);
  using _two = record.subscribe(EVERYTHING, (batch) => all.push(batch) > 0);
  record.happened("granted", life("x", "quiet", 1), clock.now());
  for (let turn = 0; turn < 5_000; turn++) record.happened("granted", life("y", "busy", 1), clock.now());
  record.happened("released", life("x", "quiet", 1), clock.now());
  await clock.pass(1_000);
  expect(quiet).toMatchObject([{ gap: false, events: [{ kind: "granted" }, { kind: "released" }] }]);
  expect(all[0]?.events).toHaveLength(500);
  expect(all.some(({ gap }) => gap)).toBe(true);
  expect(all.at(-1)?.events.at(-1)).toMatchObject({ kind: "released" });
});

test("a subscriber that can take no more is cut, the others are not", async () => {
  const clock = fakeClock();
  const record = new Record({ clock });
  let told = 0;
  record.subscribe(EVERYTHING, () => false);
  record.subscribe(EVERYTHING, () => ++told > 0);
  for (let turn = 0; turn < 2; turn++) {
    record.happened("granted", life("x", "k", 1), clock.now());
    await clock.pass(100);
  }
  expect([told, record.subscribers]).toEqual([2, 1]);
  record.close();
  record.happened("granted", life("x", "k", 1), clock.now());
  await clock.pass(100);
  expect([told, record.subscribers]).toEqual([2, 0]);
});

test("however many subscribers there are, they are looked after for a slice of time, then locks are served; each has its turn", () => {
  let now = 0;
  let run = (): void => undefined;
  // time passes whenever somebody looks
  const clock: Clock = {
    now: () => ++now,
    wall: () => now,
    uptime: () => now,
    timer(tell) {
      run = tell;
      return { set: () => undefined, keepAlive: () => undefined, stop: () => undefined };
    },
  };
  const record = new Record({ clock, size: 8, mostSubscribers: 100 });
  const told = Array.from({ length: 100 }, () => 0);
  let looks = 0;
  for (const at of told.keys()) {
    const may = (): boolean => ++looks > 0;
    record.subscribe({ prefix: "", may }, () => ++(told[at] as number) > 0);
  }
  for (let n = 0; n < 3; n++) record.happened("granted", life(`${n}`, "k", n + 1), now);
  // all of them looked through would be 300, and each event told once more as many
  expect(looks).toBeGreaterThan(0);
  expect(looks).toBeLessThan(50);
  for (let turn = 0; turn < 100; turn++) {
    now += 50;
    run();
  }
  expect(told.filter((times) => times === 0)).toEqual([]);
});

test("there are only so many subscribers", () => {
  const record = new Record({ clock: fakeClock(), mostSubscribers: 1 });
  using _ = record.subscribe(EVERYTHING, () => true);
  expect(() => record.subscribe(EVERYTHING, () => true)).toThrow(expect.objectContaining({ code: "LIMIT" }));
});

test("waits and holds are measured, and how many claims are held", () => {
  const record = new Record({ clock: fakeClock() });
  const kinds: readonly Happening[] = ["waiting", "granted", "revoked", "outstayed"];
  for (const kind of kinds) record.happened(kind, life("a", "k", kind === "waiting" ? 0 : 1), 1_250);
  record.happened("reclaimed", life("b", "k", 2), 1_250);
  expect([record.held, record.waits.sumMs]).toEqual([2, 250]);
  record.happened("left", life("c", "k"), 3_000);
  record.happened("released", life("a", "k", 1), 3_250);
  record.happened("expired", life("b", "k", 2), 1_250);
  expect([record.held, record.holds.sumMs]).toEqual([0, 2_000]);
});
