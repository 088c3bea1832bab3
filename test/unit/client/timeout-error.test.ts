import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { expect, test } from "vitest";
import type { Lockable } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { LockTimeoutError } from "../../../src/errors.ts";
import { withoutCurrentLock } from "../../../src/wrapping/current-lock.ts";

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

/** The message of the time-out of a request that two flows make, each of which holds what the other one waits for. */
async function deadlock(first: Lockable, second: Lockable): Promise<string> {
  const meet = new EventEmitter();
  const messages = [first, second].map((own, index) =>
    own.using(async () => {
      if (index === 1) meet.emit("both");
      else await once(meet, "both");
      return (index === 0 ? second : first)
        .acquire({ wait: index === 0 ? 20 : 60_000 })
        .then((lock) => lock.release())
        .catch((error: LockTimeoutError) => error.message);
    }),
  );
  return String(await messages[0]);
}

test("a time-out names the keys that its flow holds, and what avoids a deadlock between flows", async () => {
  const locks = createLocks(memory(), { label: "me" });
  expect(await deadlock(locks.mutex("a"), locks.mutex("b"))).toMatch(
    /^waited \d+ ms for "b": held by me for \d+ ms, 1 ahead in the queue; this async flow holds "a" meanwhile: if the holder waits for that, request all keys at once with locks\.all\(\)$/,
  );
  const permits = locks.semaphore("gpu", 2);
  expect(await deadlock(permits, permits)).toMatch(
    /^waited \d+ ms for "gpu": .*; this async flow holds "gpu" already: if others hold a part and wait for more, request all permits at once$/,
  );
  await locks.using("a", async () => {
    await withoutCurrentLock(() => assert.rejects(locks.acquire("a", { wait: 10 }), /^(?!.*this async flow).*$/));
    const busy = locks.acquire("b", { wait: 0 }).then((lock) => lock.release());
    await busy;
  });
  await locks.close();
});
