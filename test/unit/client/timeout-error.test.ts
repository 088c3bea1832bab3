import assert from "node:assert/strict";
import { test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { LockTimeoutError } from "../../../src/errors.ts";

test("a timeout behind another request of the same client names that holder as well", async () => {
  const locks = createLocks(memory());
  const holder = await locks.acquire("k", { label: "the first" });
  const patient = locks.acquire("k");
  for (const wait of [0, 10]) {
    const error = await locks.acquire("k", { wait }).catch((thrown: LockTimeoutError) => thrown);
    assert.ok("blocked" in error);
    assert.equal(error.blocked.holder, "the first");
    assert.equal(error.blocked.ahead, 2, "the holder, and the request before it");
    assert.match(error.message, /^(could not lock "k" at once|waited \d+ ms for "k"): held by the first for \d+ ms/);
  }
  await holder.release();
  await (await patient).release();
  await locks.close();
});
