/** all(): several keys together, whether or not the store can claim them together. */

import assert from "node:assert/strict";
import { randomOf } from "../random.ts";
import type { Check, Subject } from "../subject.ts";
import { coded, empty, pending, player } from "./players.ts";

export function severalKeys(check: Check, { traits }: Subject): void {
  check("all() holds every key, or none", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await one.locks.all("c", "a", "b").acquire();
    assert.deepEqual(lock.keys, ["a", "b", "c"]);
    if (traits.fencing) for (const key of lock.keys) assert.ok(lock.tokenOf(key) <= lock.token);
    for (const key of lock.keys) assert.equal(await other.locks.tryAcquire(key), null);
    assert.equal(await other.locks.all("x", "c").tryAcquire(), null);
    await assert.rejects(other.locks.all("0", "b").acquire({ wait: 50 }), coded("LOCK_TIMEOUT"));
    for (const key of ["x", "0"]) assert.equal(await one.locks.tryAcquire(key).then((free) => free?.release()), true);
    assert.equal(await lock.release(), true);
    await empty(scene);
  });

  check("requests that name the same keys in different orders never deadlock", async (scene) => {
    const players = [await player(scene), await player(scene), await player(scene, { handoffs: 1 })];
    const random = randomOf(3);
    const inside = new Set<string>();
    const dance = async ({ locks }: (typeof players)[number]): Promise<void> => {
      for (let round = 0; round < 10; round++) {
        const keys = ["a", "b", "c", "d"].filter(() => random.chance(0.6)).sort(() => random.next() - 0.5);
        await locks.all("e", ...keys.slice(0, round % 4)).using(async ({ keys: held }) => {
          for (const key of held) {
            assert.ok(!inside.has(key), `two hold "${key}"`);
            inside.add(key);
          }
          await scene.pause(round % 2);
          for (const key of held) inside.delete(key);
        });
      }
    };
    await Promise.all(players.flatMap((one) => [dance(one), dance(one)]));
    await empty(scene);
  });

  check("an aborted wait for several keys leaves none of them", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    for (const busy of ["a", "b", "c"]) {
      const holder = await other.locks.acquire(busy);
      const abort = new AbortController();
      const waits = pending(one.locks.all("a", "b", "c").acquire({ signal: abort.signal }));
      await scene.pause(10);
      abort.abort(new RangeError("enough"));
      await assert.rejects(waits, RangeError);
      await holder.release();
      await empty(scene);
    }
  });

  if (!traits.fencing) return;

  check("the tokens of several keys rise with those of each", async (scene) => {
    const { locks } = await player(scene);
    const last = new Map<string, bigint>();
    for (const keys of [["a"], ["b", "a"], ["b"], ["a", "b", "c"], ["c"], ["a"], ["a", "c"]]) {
      await locks.all(...keys).using((lock) => {
        for (const key of lock.keys) {
          assert.ok(lock.tokenOf(key) > (last.get(key) ?? 0n));
          last.set(key, lock.tokenOf(key));
        }
      });
    }
  });
}
