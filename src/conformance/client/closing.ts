/** close() and releaseAll(). */

import assert from "node:assert/strict";
import type { LockLostError } from "../../errors.ts";
import type { Check } from "../subject.ts";
import { coded, empty, holding, pending, placed, player } from "./players.ts";

export function clientClosing(check: Check): void {
  check("close() gives back what is held, ends waits with ClosedError, and leaves nothing", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const held = [await one.locks.acquire("a"), await one.locks.all("b", "c").acquire()];
    const busy = await holding(other.locks, "busy");
    const waits = ["busy", "busy", "a"].map((key) => pending(one.locks.acquire(key)));
    await placed(scene, one.locks.traits.manyKeys ? 4 : 5);
    const rejected = Promise.all(waits.map((wait) => assert.rejects(wait, coded("CLOSED"))));
    await one.locks.close();
    await rejected;
    await placed(scene, 1);
    for (const lock of held) {
      assert.throws(() => lock.throwIfLost(), coded("LOCK_LOST"));
      assert.equal(await lock.release(), false);
    }
    await busy.release();
    await empty(scene);
  });

  check("a closed client refuses everything with ClosedError; closing it again does nothing", async (scene) => {
    const { locks } = await player(scene);
    await locks.using("key", () => undefined);
    await Promise.all([locks.close(), locks.close()]);
    await assert.rejects(locks.acquire("key"), coded("CLOSED"));
    await assert.rejects(locks.tryAcquire("key"), coded("CLOSED"));
    await assert.rejects(locks.all("a", "b").acquire(), coded("CLOSED"));
    await assert.rejects(
      locks.using("key", () => assert.fail("the body is not run")),
      coded("CLOSED"),
    );
    await assert.rejects(locks.list(), coded("CLOSED"));
    await locks[Symbol.asyncDispose]();
  });

  check("releaseAll() gives back everything and the client stays usable", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const held = [await one.locks.acquire("a"), await one.locks.acquire("b")];
    const next = pending(other.locks.acquire("a"));
    await one.locks.releaseAll();
    for (const lock of held) {
      assert.ok(lock.signal.aborted);
      assert.equal((lock.signal.reason as LockLostError).reason, "released");
      assert.equal(await lock.release(), false);
    }
    await (await next).release();
    await one.locks.using("a", () => undefined);
    await empty(scene);
  });

  check("close() in the middle of everything leaves nothing", async (scene) => {
    for (let round = 0; round < 5; round++) {
      const one = await player(scene, {}, { delayCall: 0.5, longestMs: 4, seed: round + 1 });
      const work = Array.from({ length: 20 }, (_, index) =>
        one.locks
          .using(`key ${index % 3}`, () => scene.pause(1))
          .then(
            () => null,
            (error: { code?: unknown }) => error.code,
          ),
      );
      await scene.pause(round * 4);
      await one.locks.close();
      for (const code of await Promise.all(work))
        assert.ok([null, "CLOSED", "LOCK_LOST"].includes(code as string | null));
      await empty(scene);
    }
  });
}
