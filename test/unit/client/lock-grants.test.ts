// What a lock says of each of its keys to a resource that fences.

import { expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import { createLocks } from "../../../src/index.ts";

test("each key has its token, the key of the store, and whether the lock excludes others", async () => {
  const locks = createLocks(memory(), { prefix: "app:" });
  const lock = await locks.all("b", locks.rw("a").read, locks.semaphore("c", 5), locks.semaphore("d", 1)).acquire();
  const [view] = await locks.list();
  const tag = view?.tag;
  expect(tag).toMatch(/^[a-z2-7]{10}$/);
  expect(lock.grants).toEqual([
    { key: "a", storeKey: "app:a", token: lock.tokenOf("a"), isExclusive: false, tag },
    { key: "b", storeKey: "app:b", token: lock.tokenOf("b"), isExclusive: true, tag },
    { key: "c", storeKey: "app:c", token: lock.tokenOf("c"), isExclusive: false, tag },
    { key: "d", storeKey: "app:d", token: lock.tokenOf("d"), isExclusive: true, tag },
  ]);
  await lock.release();
  await locks.close();
});

test("a reader that joined a writer is exclusive, with the writer's token", async () => {
  const locks = createLocks(memory());
  await locks.using("k", async (writer) => {
    await locks.rw("k").read.using(async (reader) => {
      expect(reader.grants).toEqual([
        { key: "k", storeKey: "k", token: writer.token, isExclusive: true, tag: writer.grants[0]?.tag },
      ]);
    });
  });
  await locks.close();
});
