import { expect, test } from "vitest";
import { RecheckTimes } from "../../../../src/drivers/sql/recheck.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const INTERVALS = { shortMs: 25, firstMs: 1_000, longMs: 250 };

/** When the core, which rounds up to milliseconds, asks again: times of the clock until `endMs`. */
async function recheckTimes(clock: FakeClock, times: RecheckTimes, id: string, endMs: number): Promise<number[]> {
  const asked: number[] = [];
  while (clock.now() < endMs) {
    const dueAt = Math.ceil(clock.now() + times.next(id, 30_000));
    await clock.advance(dueAt - clock.now());
    asked.push(clock.now());
  }
  return asked;
}

test("claims that began to wait at different times are asked about at the same ones, seldom after the first second", async () => {
  const [clock, times] = [new FakeClock(), new RecheckTimes(INTERVALS, new FakeClock())];
  const own = new RecheckTimes(INTERVALS, clock);
  expect(times.next("x", 30_000)).toBeGreaterThan(0);
  await clock.advance(7.3);
  const asked = await recheckTimes(clock, own, "a", clock.now() + 4_000);
  const offsets = new Set(asked.map((at) => Math.round(at % 25)));
  expect(offsets.size).toBe(1);
  const late = asked.filter((at) => at > (asked[0] ?? 0) + 1_250);
  const gaps = late.slice(1).map((at, index) => at - (late[index] as number));
  expect(new Set(gaps)).toEqual(new Set([250]));
  expect(asked.length).toBeLessThan(60);
});

test("a recheck is never later than the store asks for, and never in the past", async () => {
  const clock = new FakeClock();
  const times = new RecheckTimes(INTERVALS, clock);
  expect(times.next("a", 3)).toBe(3);
  for (let step = 0; step < 200; step++) {
    await clock.advance(0.7);
    expect(times.next("b", 30_000)).toBeGreaterThanOrEqual(1);
    expect(times.next("b", 30_000)).toBeLessThanOrEqual(251);
  }
});

test("a claim that ended and waits again begins with short intervals", async () => {
  const clock = new FakeClock();
  const times = new RecheckTimes(INTERVALS, clock);
  times.next("a", 30_000);
  await clock.advance(5_000);
  expect(times.next("a", 30_000)).toBeGreaterThan(200);
  times.forget("a");
  expect(times.next("a", 30_000)).toBeLessThanOrEqual(25.5);
});
