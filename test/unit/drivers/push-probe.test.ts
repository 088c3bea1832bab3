import { expect, test } from "vitest";
import { PushProbe } from "../../../src/drivers/push-probe.ts";

test("a probe arrives when it comes back, and neither an earlier one nor one that nobody waits for counts", async () => {
  const probe = new PushProbe();
  const earlier = probe.expect();
  const { message, arrival } = probe.expect();
  let hasArrived = false;
  void arrival.then(() => {
    hasArrived = true;
  });
  expect([probe.onMessage(earlier.message), probe.onMessage("?"), probe.onMessage("id 17")]).toEqual([
    true,
    true,
    false,
  ]);
  await Promise.resolve();
  expect(hasArrived).toBe(false);
  expect(probe.onMessage(message)).toBe(true);
  await arrival;
});
