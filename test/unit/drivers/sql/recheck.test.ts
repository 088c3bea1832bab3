import { expect, test } from "vitest";
import { RecheckTimes } from "../../../../src/drivers/sql/recheck.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const [a, b] = [makeClaim("a"), makeClaim("b")];
const INTERVALS = { nextMs: 3.125, shortMs: 25, firstMs: 1_000, longMs: 250 };

/** When the core, which rounds up to milliseconds, asks again within `ms`: times of the clock. */
async function recheckTimes(
  clock: FakeClock,
  times: RecheckTimes,
  waitersAhead: number | null,
  ms: number,
): Promise<number[]> {
  const asked: number[] = [];
  const endMs = clock.now() + ms;
  for (;;) {
    const dueAt = Math.ceil(clock.now() + times.next(a, waitersAhead, 30_000));
    if (dueAt > endMs) return asked;
    await clock.advance(dueAt - clock.now());
    asked.push(clock.now());
  }
}

function gapsOf(asked: readonly number[]): number[] {
  return asked.slice(1).map((at, index) => at - (asked[index] as number));
}

test.each([null, 0, 2, 40])(
  "claims that began to wait at different times are asked about at the same ones, seldom after the first second (behind %s waiters)",
  async (waitersAhead) => {
    const clock = new FakeClock();
    const times = new RecheckTimes(INTERVALS, clock);
    await clock.advance(7.3);
    const early = await recheckTimes(clock, times, waitersAhead, 1_250);
    expect(new Set(early.slice(-10, -1).map((at) => Math.round(at % 25))).size).toBe(1);
    expect(early.length).toBeLessThan(70);
    const late = await recheckTimes(clock, times, waitersAhead, 4_000);
    expect(new Set(gapsOf(late))).toEqual(new Set([250]));
  },
);

test("the next claim is rechecked most often, and less often the longer its queue does not move", async () => {
  const clock = new FakeClock();
  const since = clock.now();
  const asked = await recheckTimes(clock, new RecheckTimes(INTERVALS, clock), 0, 200);
  const countBetween = (from: number, to: number): number =>
    asked.filter((at) => at - since > from && at - since <= to).length;
  expect([countBetween(0, 25), countBetween(25, 50), countBetween(50, 100), countBetween(100, 200)]).toEqual([
    8, 4, 4, 4,
  ]);
});

test.each([
  [1, 6.25],
  [2, 12.5],
  [3, 25],
  [9, 25],
])("behind %i waiters a claim is rechecked every %d ms at first", async (waitersAhead, intervalMs) => {
  const clock = new FakeClock();
  const asked = await recheckTimes(clock, new RecheckTimes(INTERVALS, clock), waitersAhead, 50);
  expect(asked).toHaveLength(50 / intervalMs);
});

test("a claim near the front is rechecked often again when the queue has moved, one further back is not", async () => {
  const clock = new FakeClock();
  const times = new RecheckTimes(INTERVALS, clock);
  times.next(a, 1, 30_000);
  times.next(b, 40, 30_000);
  await clock.advance(5_000);
  expect(times.next(a, 0, 30_000)).toBeLessThanOrEqual(4.125);
  expect(times.next(b, 39, 30_000)).toBeGreaterThan(200);
  expect(times.next(b, 2, 30_000)).toBeLessThanOrEqual(13.5);
});

test("a recheck is never later than the store asks for, and never in the past", async () => {
  const clock = new FakeClock();
  const times = new RecheckTimes(INTERVALS, clock);
  expect(times.next(a, null, 3)).toBe(3);
  for (let step = 0; step < 200; step++) {
    await clock.advance(0.7);
    expect(times.next(b, 0, 30_000)).toBeGreaterThanOrEqual(1);
    expect(times.next(b, 0, 30_000)).toBeLessThanOrEqual(251);
  }
});

test("a claim that ended and waits again begins with short intervals", async () => {
  const clock = new FakeClock();
  const times = new RecheckTimes(INTERVALS, clock);
  times.next(a, null, 30_000);
  await clock.advance(5_000);
  expect(times.next(a, null, 30_000)).toBeGreaterThan(200);
  times.endWait(a);
  expect(times.next(a, null, 30_000)).toBeLessThanOrEqual(25.5);
});
