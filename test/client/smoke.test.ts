import assert from "node:assert/strict";
import { test } from "vitest";
import { createLocks } from "../../src/client/locks.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";

test("smoke", async () => {
  const store = memoryStore();
  const a = createLocks(memory({ store }), { label: "a" });
  const b = createLocks(memory({ store }), { label: "b" });
  const first = await a.acquire("k");
  assert.ok(first.token > 0n);
  assert.equal(await b.tryAcquire("k"), null);
  await assert.rejects(b.acquire("k", { wait: 50 }), (e: Error) => {
    console.log(e.message);
    return e.name === "LockTimeoutError";
  });
  const waits = b.acquire("k");
  assert.equal(await first.release(), true);
  const second = await waits;
  assert.ok(second.token > first.token);
  const ref = await second.detach();
  const again = await a.attach(ref);
  assert.equal(again.token, second.token);
  assert.equal(await again.release(), true);
  await assert.rejects(a.attach(ref), (e: Error) => {
    console.log(e.message);
    return e.name === "LockLostError";
  });
  let n = 0;
  await Promise.all(
    Array.from({ length: 64 }, () =>
      a.using("c", async () => {
        assert.equal(n++, 0);
        await a.using("c", async (l) => assert.ok(l.remainingMs > 0));
        n--;
      }),
    ),
  );
  const sem = a.semaphore("s", 2);
  const s1 = await sem.acquire();
  const s2 = await sem.acquire();
  assert.equal(await sem.tryAcquire(), null);
  await s1.release();
  await s2.release();
  await a.all("x", "y", "c").using(async () => {
    await a.using("x", async () => {});
    await assert.rejects(async () => a.semaphore("x", 3).acquire(), { code: "LOCK_DEADLOCK" });
  });
  assert.deepEqual(await a.list(), []);
  await a.close();
  await b.close();
  await assert.rejects(a.acquire("x"), { code: "CLOSED" });
});
