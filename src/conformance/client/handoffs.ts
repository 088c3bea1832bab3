/** Within one client a lock is passed on without asking the store, within bounds. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Check, Subject } from "../subject.ts";
import type { Player } from "./players.ts";
import { empty, pending, placed, player } from "./players.ts";

export function handoffs(check: Check, { traits }: Subject): void {
  check("a busy client passes the lock on by itself, and tokens go on rising", async (scene) => {
    const { locks, line } = await player(scene, { handoffMs: 10_000 });
    let handedOff = 0;
    locks.on("handedOff", () => handedOff++);
    let last = 0n;
    const body = (lock: Lock): void => {
      if (!traits.fencing) return;
      assert.ok(lock.token > last, `${lock.token} after ${last}`);
      last = lock.token;
    };
    await Promise.all(Array.from({ length: 200 }, () => locks.using("key", body)));
    const claims = line.calls("claim");
    assert.equal(claims + handedOff, 200, "every holder had a claim or was handed one");
    await empty(scene);
  });

  check("a client that hands off lets others in between its runs", async (scene) => {
    const [busy, other] = [await player(scene, { handoffs: 4 }), await player(scene)];
    let isOver = false;
    const loop = async (): Promise<void> => {
      while (!isOver) await busy.locks.using("key", () => scene.pause(1));
    };
    const loops = Array.from({ length: 12 }, loop);
    for (let round = 0; round < 5; round++) {
      await other.locks.using("key", { wait: scene.ms(5_000) }, () => undefined);
    }
    isOver = true;
    await Promise.all(loops);
    await empty(scene);
  });

  if (!traits.fifo) return;

  check("handoffs: 1 is first come, first served, across clients and within one", async (scene) => {
    const players = [await player(scene, { handoffs: 1 }), await player(scene, { handoffs: 1 })];
    // one for all looks: opening another for each took the time that the others wait
    const { driver } = await scene.client();
    const first = await (players[0] as Player).locks.acquire("key");
    const served: number[] = [];
    const waits: Promise<unknown>[] = [];
    for (let index = 0; index < 8; index++) {
      const { locks } = players[(index >> 1) % 2] as Player;
      waits.push(pending(locks.using("key", () => served.push(index))));
      await placed(scene, index + 2, driver);
    }
    await first.release();
    await Promise.all(waits);
    assert.deepEqual(served, [0, 1, 2, 3, 4, 5, 6, 7]);
    await empty(scene);
  });
}
