/** Who holds a lock may ask for it again inside using() and lock.run(). */

import assert from "node:assert/strict";
import type { Check, Subject } from "../subject.ts";
import { coded, empty, pending, player, stateOf } from "./players.ts";

export function reentrancy(check: Check, { traits }: Subject): void {
  check("nested requests join, keep the token, and only the last one gives the lock back", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    await one.locks.using("key", async (outer) => {
      const inner = await one.locks.acquire("key");
      if (traits.fencing) assert.equal(inner.token, outer.token);
      await one.locks.using("key", async () => assert.ok(one.locks.holds("key")));
      assert.notEqual(await one.locks.tryAcquire("key").then((lock) => lock?.release()), undefined);
      assert.equal(await inner.release(), true);
      outer.throwIfLost();
      assert.equal(await other.locks.tryAcquire("key"), null);
    });
    assert.ok(!one.locks.holds("key"));
    assert.equal(await other.locks.tryAcquire("key").then((lock) => lock?.release()), true);
  });

  check("lock.run() is as if inside using(); a bare acquire is not", async (scene) => {
    const { locks } = await player(scene);
    const lock = await locks.acquire("key");
    assert.ok(!locks.holds("key"));
    assert.equal(await locks.tryAcquire("key"), null);
    await lock.run(async () => {
      assert.ok(locks.holds("key"));
      await locks.using("key", () => undefined);
    });
    assert.ok(!locks.holds("key"));
    assert.equal(await lock.release(), true);
  });

  check("parallel flows do not share a lock", async (scene) => {
    const { locks } = await player(scene);
    let inside = 0;
    const body = async (): Promise<void> => {
      assert.equal(++inside, 1);
      await locks.using("key", () => scene.pause(1));
      inside--;
    };
    await Promise.all(Array.from({ length: 8 }, () => locks.using("key", body)));
  });

  check("two nested requests at once join both", async (scene) => {
    const { locks } = await player(scene);
    await locks.using("key", async () => {
      let inside = 0;
      const body = async (): Promise<number> => {
        inside++;
        await scene.pause(5);
        return inside;
      };
      assert.deepEqual(await Promise.all([locks.using("key", body), locks.using("key", body)]), [2, 2]);
    });
  });

  check("what outlives the hold queues like anyone", async (scene) => {
    const { locks } = await player(scene);
    let late: Promise<unknown> = Promise.resolve();
    let goOn = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    await locks.using("key", () => {
      late = pending(gate.then(() => locks.using("key", () => undefined)));
    });
    const lock = await locks.acquire("key");
    goOn();
    await scene.pause(20);
    assert.equal(await stateOf(late), "pending");
    await lock.release();
    await late;
  });

  check("reentrant: false makes a nested request a DeadlockError, at once", async (scene) => {
    const { locks } = await player(scene, { reentrant: false });
    await locks.using("key", async () => {
      await assert.rejects(locks.acquire("key"), coded("LOCK_DEADLOCK"));
    });
    await locks.using("key", () => undefined);
  });

  check("all() inside a hold joins what is held and claims the rest", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    await one.locks.using("b", async (outer) => {
      await one.locks.all("a", "b", "c").using(async (lock) => {
        assert.deepEqual(lock.keys, ["a", "b", "c"]);
        if (traits.fencing) assert.equal(lock.tokenOf("b"), outer.token);
        for (const key of ["a", "b", "c"]) assert.equal(await other.locks.tryAcquire(key), null);
      });
      assert.equal(await other.locks.tryAcquire("a").then((lock) => lock?.release()), true);
      assert.equal(await other.locks.tryAcquire("b"), null);
    });
    await empty(scene);
  });

  if (traits.permits === "one") return;

  check("reading inside writing joins; writing inside reading is a DeadlockError, at once", async (scene) => {
    const { locks } = await player(scene);
    const { read, write } = locks.rw("key");
    await write.using(() => read.using(() => write.using(() => undefined)));
    await read.using(async () => {
      await read.using(() => undefined);
      await assert.rejects(write.acquire(), coded("LOCK_DEADLOCK"));
      await assert.rejects(locks.acquire("key"), coded("LOCK_DEADLOCK"));
      await assert.rejects(locks.tryAcquire("key"), coded("LOCK_DEADLOCK"));
    });
    await empty(scene);
  });

  if (traits.permits !== "any") return;

  check(
    "a semaphore never joins: nested calls take permits, and one that could only wait for its own flow is refused",
    async (scene) => {
      const { locks } = await player(scene);
      const gpu = locks.semaphore("gpu", 3);
      await gpu.using({ permits: 2 }, async () => {
        await gpu.using(async () => {
          assert.equal(
            await locks
              .semaphore("gpu", 5)
              .tryAcquire({ permits: 2 })
              .then((lock) => lock?.release()),
            true,
          );
          await assert.rejects(gpu.acquire(), coded("LOCK_DEADLOCK"));
        });
        await assert.rejects(gpu.acquire({ permits: 2 }), coded("LOCK_DEADLOCK"));
      });
      await empty(scene);
    },
  );
}
