import assert from "node:assert/strict";
import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";

test("a client attaches a lock once: the second attempt is an error, and the first lock stays", async () => {
  const store = memoryStore();
  const [locks, other] = [createLocks(memory({ store })), createLocks(memory({ store }))];
  const reference = await (await other.acquire("k")).detach();
  const [first, second] = await Promise.allSettled([locks.attach(reference), locks.attach(reference)]);
  assert.ok(first?.status === "fulfilled" && second?.status === "rejected");
  expect(second.reason).toMatchObject({
    code: "UNSUPPORTED",
    keys: ["k"],
    message: expect.stringContaining("already"),
  });
  first.value.throwIfLost();
  // it can be transferred again, and return
  const again = await locks.attach(await first.value.detach());
  await assert.rejects(locks.attach(reference), { code: "UNSUPPORTED" });
  assert.equal(await again.release(), true);
  await assert.rejects(locks.attach(reference), { code: "LOCK_LOST" });
  await Promise.all([locks.close(), other.close()]);
});

test("the token of an attached lock is a floor for later requests", async () => {
  const store = memoryStore();
  const claims: Claim[] = [];
  const inner = memory({ store });
  const driver: Driver = {
    ...inner,
    // a store that outlives this process, and so may forget its tokens
    traits: { ...inner.traits, durability: "restart" },
    claim(claim) {
      claims.push(claim);
      return inner.claim(claim);
    },
  };
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.attach(await (await other.acquire("k")).detach());
  await lock.release();
  await (await locks.acquire("k")).release();
  assert.equal(claims[0]?.floor, lock.token + 1n);
  await Promise.all([locks.close(), other.close()]);
});
