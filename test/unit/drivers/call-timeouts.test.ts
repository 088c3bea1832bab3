import { expect, test } from "vitest";
import { CallTimeouts } from "../../../src/drivers/call-timeouts.ts";
import { FakeClock } from "../../support/fake-clock.ts";

test("a call that settles in time does not time out", async () => {
  const clock = new FakeClock();
  const timeouts = new CallTimeouts(clock, 100, "redis");
  let timeoutCount = 0;
  const settle = timeouts.start(() => timeoutCount++);
  await clock.advance(99);
  expect(settle()).toBe(true);
  await clock.advance(1_000);
  expect(timeoutCount).toBe(0);
  expect(clock.pendingTimers).toBe(0);
});

test("each call times out at its own time, by one timer", async () => {
  const clock = new FakeClock();
  const timeouts = new CallTimeouts(clock, 100, "redis");
  const expiredCalls: string[] = [];
  const settleFirst = timeouts.start(() => expiredCalls.push("first"));
  await clock.advance(40);
  timeouts.start(() => expiredCalls.push("second"));
  expect(clock.pendingTimers).toBe(1);
  await clock.advance(60);
  expect(expiredCalls).toEqual(["first"]);
  expect(settleFirst(), "its reply is late").toBe(false);
  await clock.advance(40);
  expect(expiredCalls).toEqual(["first", "second"]);
  expect(clock.pendingTimers).toBe(0);
});

test("a call keeps its time although an earlier one has settled", async () => {
  const clock = new FakeClock();
  const timeouts = new CallTimeouts(clock, 100, "redis");
  let timeoutCount = 0;
  const settleFirst = timeouts.start(() => undefined);
  await clock.advance(50);
  timeouts.start(() => timeoutCount++);
  settleFirst();
  await clock.advance(99);
  expect(timeoutCount).toBe(0);
  await clock.advance(1);
  expect(timeoutCount).toBe(1);
});

test("bounded work rejects when its time is over, and all pending calls when they are expired", async () => {
  const clock = new FakeClock();
  const timeouts = new CallTimeouts(clock, 100, "redis");
  const neverSettles = new Promise<void>(() => undefined);
  const rejection = expect(timeouts.bound(neverSettles, "subscription")).rejects.toThrow(
    "redis: no subscription within 100 ms",
  );
  await clock.advance(100);
  await rejection;
  const closed = expect(timeouts.bound(neverSettles, "subscription")).rejects.toThrow("redis: no subscription");
  timeouts.expireAll();
  await closed;
  expect(clock.pendingTimers).toBe(0);
});
