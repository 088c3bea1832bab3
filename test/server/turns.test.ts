// However much one connection says at a time, the others are served in between. Time passes only where it is looked at, a
// little at each look: what is done between two looks counts as a step, on any machine.

import { expect, test } from "vitest";
import type { Table } from "../../src/core/table.ts";
import { newId } from "../../src/ids.ts";
import type { Link } from "../../src/server/link.ts";
import type { Opened as Kept } from "../../src/server/opening.ts";
import { Turns } from "../../src/server/turns.ts";
import { leakCheck } from "../support/leak-check.ts";
import { cleanUp } from "./support.ts";
import { FakeClock, turns, World } from "./world.ts";

leakCheck();
cleanUp();

/** How long a look at the clock takes. */
const LOOK_MS = 0.5;
/** A slice, and the steps with which it ends. */
const SLICE_MS = 5 + 20 * LOOK_MS;

class BusyClock extends FakeClock {
  override now(): number {
    this.leap(LOOK_MS);
    return super.now();
  }
}

class Talker {
  readonly link: Link;
  readonly session: string;
  readonly #world: World;
  /** Numbers of calls in the order of their answers. */
  readonly answered: number[] = [];
  readonly failed: number[] = [];
  isHeld = false;
  isClosed = false;

  constructor(world: World, session: string = newId()) {
    this.#world = world;
    this.session = session;
    const stream = {
      write: (text: string) => this.#read(text),
      close: () => {
        this.isClosed = true;
      },
      hold: (on: boolean) => {
        this.isHeld = on;
      },
    };
    this.link = world.hub?.accept(stream, { local: true, address: "" }) as Link;
    this.link.lines([JSON.stringify({ hello: { protocol: 1, session: this.session } })]);
  }

  line(...frames: readonly unknown[]): string {
    return JSON.stringify([this.#world.hub?.start, ...frames]);
  }

  /** Says these lines at once; gives how long it was before it could say more. */
  say(...lines: readonly string[]): number {
    const began = this.#world.clock.now();
    this.link.lines(lines);
    return this.#world.clock.now() - began;
  }

  #read(text: string): void {
    for (const line of text.trimEnd().split("\n")) {
      if (!line.startsWith("[")) continue;
      for (const [kind, n] of (JSON.parse(line) as [string, number][]).slice(1)) {
        if (kind === "ok" || kind === "error") this.answered.push(n);
        if (kind === "error") this.failed.push(n);
      }
    }
  }
}

async function busy(options: ConstructorParameters<typeof World>[0] = {}): Promise<World> {
  const world = new World(options);
  Object.assign(world, { clock: new BusyClock() });
  await world.start();
  return world;
}

const tableOf = (world: World): Table => (world.kept as Kept).keeper.table;
const ids = (count: number): string[] => Array.from({ length: count }, newId);
const shared = (key: string): readonly unknown[] => [key, 1, 1_000_000];

/** Lines of every kind that costs much, each answered with so many replies. */
const EXPENSIVE: readonly (readonly [name: string, frames: () => readonly unknown[]])[] = [
  [
    "revocations",
    () =>
      Array.from({ length: 229 }, (_, n) => [
        "revoke",
        n,
        Array.from({ length: 64 }, (_, at) => ["k", String(at), true]),
      ]),
  ],
  ["claims", () => ids(229).map((id, n) => ["claim", n, id, [shared("k")], 30_000])],
  ["pings", () => ids(229).map((_, n) => ["ping", n])],
  ["renewals", () => [["renew", 0, ids(5_000)]]],
  ["releases", () => [["release", 0, ids(5_000)]]],
  ["detachments", () => [["detach", 0, ids(5_000)]]],
  [
    "reclaims",
    () => [
      [
        "reclaim",
        0,
        ids(2_000).map((id) => [
          [id, [shared("k")], 30_000],
          ["held", "5", 1, 9_000],
        ]),
        false,
      ],
    ],
  ],
];

test.each(EXPENSIVE)("a line of %s is answered in slices, and others in between", async (_, frames) => {
  const world = await busy({ state: "none" });
  const [heavy, other] = [new Talker(world), new Talker(world)];
  const all = frames();
  expect(heavy.say(heavy.line(...all), heavy.line(["ping", 5_000]))).toBeLessThan(SLICE_MS);
  expect(heavy.answered.length).toBeLessThan(all.length);
  expect(heavy.isHeld).toBe(true);
  // what it says behind it waits for its turn
  heavy.say(heavy.line(["ping", 5_001]));
  let rounds = 0;
  for (; !heavy.answered.includes(5_001); rounds++) {
    expect(other.say(other.line(["ping", rounds]))).toBeLessThan(SLICE_MS);
    expect(other.answered).toContain(rounds);
    const began = world.clock.now();
    await world.clock.pass(0.01);
    expect(world.clock.now() - began).toBeLessThan(2 * SLICE_MS);
  }
  expect(rounds).toBeGreaterThan(3);
  expect(heavy.answered).toEqual([...all.map((_, n) => n), 5_000, 5_001]);
  expect(heavy.failed).toEqual([]);
  expect(heavy.isHeld).toBe(false);
  // and again, as if nothing had been
  heavy.say(heavy.line(["ping", 5_002]));
  expect(heavy.answered.at(-1)).toBe(5_002);
});

test("all of a large frame is answered in its place, and done", async () => {
  const world = await busy();
  const heavy = new Talker(world);
  const mine = ids(1_000);
  heavy.say(heavy.line(...mine.map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  await world.clock.pass(1_000);
  expect(heavy.answered).toHaveLength(1_000);
  const { entries } = tableOf(world);
  expect(entries.size).toBe(1_000);
  heavy.say(heavy.line(["release", 2_000, [...mine.slice(0, 700), ...ids(300)]], ["renew", 2_001, mine.slice(700)]));
  expect(heavy.answered).not.toContain(2_000);
  await world.clock.pass(1_000);
  expect(heavy.answered.slice(-2)).toEqual([2_000, 2_001]);
  expect(mine.map((id) => entries.has(id))).toEqual(mine.map((_, n) => n >= 700));
});

test("what was said and is not done yet when the connection ends is as if it had been lost", async () => {
  const world = await busy();
  const [heavy, other] = [new Talker(world), new Talker(world)];
  heavy.say(heavy.line(...ids(500).map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  heavy.link.ended();
  const { entries } = tableOf(world);
  await world.clock.pass(2_000);
  expect(entries.size).toBe(0);
  other.say(other.line(["ping", 1]));
  expect(other.answered).toEqual([1]);
});

test("a malformed frame far behind ends the connection when it is come to", async () => {
  const world = await busy();
  const heavy = new Talker(world);
  heavy.say(heavy.line(...ids(200).map((_, n) => ["ping", n]), "no frame", ["ping", 300]), heavy.line(["ping", 301]));
  expect(heavy.isClosed).toBe(false);
  await world.clock.pass(2_000);
  expect(heavy.isClosed).toBe(true);
  expect(heavy.answered).toEqual(Array.from({ length: 200 }, (_, n) => n));
});

test("of many who say much each comes to its turn, and a newcomer is served at once", async () => {
  const world = await busy();
  const all = Array.from({ length: 20 }, () => new Talker(world));
  for (const one of all) one.say(one.line(...ids(200).map((_, n) => ["ping", n])));
  // so that thousands do not each have a slice of their own first
  expect(all.at(-1)?.answered.length).toBeLessThan((all[0]?.answered.length ?? 0) / 2);
  while (Math.max(...all.map(({ answered }) => answered.length)) < 100) await world.clock.pass(1);
  expect(Math.min(...all.map(({ answered }) => answered.length))).toBeGreaterThan(60);
  const late = new Talker(world);
  expect(late.say(late.line(["ping", 1]))).toBeLessThan(SLICE_MS);
  expect(late.answered).toEqual([1]);
  while (all.some(({ answered }) => answered.length < 200)) await world.clock.pass(100);
  for (const { answered } of all) expect(answered).toEqual(Array.from({ length: 200 }, (_, n) => n));
});

test("reclaim x slices: that a session has told all counts when the last of it stands", async () => {
  const world = await busy();
  const mine = new Talker(world);
  const held = ids(300);
  mine.say(mine.line(...held.map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  await world.clock.pass(2_000);
  const tokens = held.map((id) => tableOf(world).entries.get(id)?.token);
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaiming).toBe(true);
  const back = new Talker(world, mine.session);
  const items = held.map((id, n) => [
    [id, [`k${n}`], 30_000],
    ["held", String(tokens[n]), 1, 20_000],
  ]);
  back.say(back.line(["reclaim", 1, items, true]));
  expect(world.kept?.keeper.reclaiming).toBe(true);
  await world.clock.pass(2_000);
  expect(back.answered).toEqual([1]);
  expect(tableOf(world).entries.size).toBe(300);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  await turns();
});

test("turns: nobody is forgotten who had none when the slice was over", () => {
  const clock = new BusyClock();
  const order: number[] = [];
  const all = new Turns(clock);
  const worker = (name: number, times: number) => ({
    work: () => {
      order.push(name);
      clock.leap(3);
      return --times === 0;
    },
  });
  for (const name of [1, 2, 3]) all.add(worker(name, 2));
  return clock.pass(100).then(() => expect(order).toEqual([1, 2, 3, 1, 2, 3]));
});
