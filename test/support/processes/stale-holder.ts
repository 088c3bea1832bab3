/** A holder that sleeps through the end of its lease while another is granted: alike on every store. */

import { expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { openFencedRegister } from "./fenced-register.ts";
import type { ProcessHarness } from "./process-harness.ts";
import { startWorker } from "./worker.ts";

/** It is told before it can write, and its token is refused by a register that compares tokens. */
export async function expectStaleHolderRejected(harness: ProcessHarness, url: string): Promise<void> {
  const register = await openFencedRegister(harness);
  const holder = await startWorker(harness, url, register.path);
  const next = await startWorker(harness, url, register.path);
  holder.acquire("r", "k", { ttl: "3s" });
  const before = await holder.waitForReport("r", "held");
  holder.send({ do: "use", of: "r" });
  await until(() => register.log.length > 10, { within: 5_000, what: "writes of the holder" });
  holder.stop();
  next.acquire("r", "k", { ttl: "10s" });
  const granted = await next.waitForReport("r", "held");
  next.send({ do: "write", of: "r" });
  await next.waitForReport("r", "written");
  expect(BigInt(granted.token!)).toBeGreaterThan(BigInt(before.token!));

  holder.resume();
  expect((await holder.waitForReport("r", "lost")).reason).toBe("expired");
  const stopped = await holder.waitForReport("r", "stopped");
  // it asked its lock before each write, and was never told "held" after the next one was
  expect(BigInt(stopped.believedAt!)).toBeLessThan(BigInt(granted.at));
  const firstOfNext = register.log.findIndex(({ token }) => String(token) === granted.token);
  const lateWrites = register.log.slice(firstOfNext).filter(({ pid, accepted }) => pid === holder.pid && accepted);
  expect(lateWrites).toEqual([]);
  // one that does not ask is refused by its token
  holder.send({ do: "write", of: "r" });
  await holder.waitForReport("r", "refused");
}
