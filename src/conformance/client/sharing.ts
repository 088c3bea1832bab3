/** Readers, writers and semaphores as users meet them. */

import assert from "node:assert/strict";
import type { Check, Subject } from "../subject.ts";
import { coded, empty, pending, placed, player, stateOf } from "./players.ts";

export function sharing(check: Check, { traits }: Subject): void {
  if (traits.permits === "one") {
    check("shared locks and semaphores are refused before anything is sent", async (scene) => {
      const { locks, line } = await player(scene);
      await locks.using("key", () => undefined);
      const before = line.calls("claim");
      await assert.rejects(locks.rw("key").read.acquire(), coded("UNSUPPORTED"));
      await assert.rejects(locks.semaphore("key", 2).acquire(), coded("UNSUPPORTED"));
      assert.equal(line.calls("claim"), before);
    });
    return;
  }

  check("rw: readers share, across clients and within one; a writer has it alone", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const readers = [
      await one.locks.rw("key").read.acquire(),
      await one.locks.rw("key").read.acquire(),
      await other.locks.rw("key").read.acquire(),
    ];
    if (traits.fencing) assert.equal(new Set(readers.map(({ token }) => token)).size, 3, "each has a token of its own");
    assert.equal(await other.locks.tryAcquire("key"), null);
    const writes = pending(one.locks.rw("key").write.acquire());
    await placed(scene, 4);
    for (const reader of readers) {
      assert.equal(await stateOf(writes), "pending");
      assert.equal(await reader.release(), true);
    }
    const writer = await writes;
    assert.equal(await other.locks.rw("key").read.tryAcquire(), null);
    await writer.release();
  });

  if (traits.permits === "shared") {
    check("semaphores are refused before anything is sent", async (scene) => {
      const { locks } = await player(scene);
      await assert.rejects(locks.semaphore("key", 2).acquire(), coded("UNSUPPORTED"));
    });
    return;
  }

  check("semaphore: as many are inside as it has permits, across clients", async (scene) => {
    const players = [await player(scene), await player(scene), await player(scene)];
    let used = 0;
    let most = 0;
    const use = (permits: number) => async (): Promise<void> => {
      used += permits;
      most = Math.max(most, used);
      await scene.pause(2);
      used -= permits;
    };
    await Promise.all(
      players.flatMap(({ locks }) =>
        [1, 2, 1, 3, 1, 2].map((permits) => locks.semaphore("key", 4).using({ permits }, use(permits))),
      ),
    );
    assert.ok(most <= 4, `${most} of 4 permits were out at once`);
    assert.ok(most >= 2, "they were used side by side");
    await empty(scene);
  });
}
