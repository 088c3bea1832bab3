import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";

test("a lock that is printed, copied or logged as JSON shows its keys and no secret", async () => {
  const driver = memory();
  const ids: string[] = [];
  const claim = driver.claim.bind(driver);
  Object.assign(driver, {
    claim: (request: Parameters<typeof claim>[0]) => {
      ids.push(request.id);
      return claim(request);
    },
  });
  const locks = createLocks(driver);
  const lock = await locks.acquire("printed");
  assert.equal(ids.length, 1);
  for (const value of [lock, locks, { ...lock }, { lock, locks }])
    assert.ok(!inspect(value, { depth: null, showHidden: true }).includes(ids[0] as string));
  assert.equal(JSON.stringify(lock), '{"keys":["printed"]}');
  await locks.close();
});

test("a listener that releases the lock whose release it hears of gets the same result, and the next waiter the lock", async () => {
  const locks = createLocks(memory());
  const lock = await locks.acquire("k");
  const waiting = locks.acquire("k");
  const inner = new Promise<boolean>((resolve) => locks.on("released", () => resolve(lock.release())));
  assert.deepEqual(await Promise.all([lock.release(), inner, lock.release()]), [true, true, true]);
  assert.equal(await (await waiting).release(), true);
  await locks.close();
});
