/** An operator revokes a lock through a client, and its holder's client tells it. */

import assert from "node:assert/strict";
import type { LockLostError } from "../../errors.ts";
import type { Check, Subject } from "../subject.ts";
import { coded, passes, pending, placed, player } from "./players.ts";

export function clientRevoking(check: Check, { traits, verbs }: Subject): void {
  if (!verbs.includes("revoke") || !traits.fencing) return;

  check(
    "a revoked holder's signal aborts with reason revoked, and the next one follows when it has let go",
    async (scene) => {
      const ttl = scene.lease(400);
      const [one, other] = [await player(scene, { ttl }), await player(scene, { prefix: "" })];
      const lock = await one.locks.acquire("key");
      const next = pending(other.locks.acquire("key"));
      await placed(scene, 2);
      assert.equal(await other.locks.revoke("key", lock.token - 1n), false, "another's token");
      lock.throwIfLost();
      assert.equal(await other.locks.revoke("key", lock.token, { reason: "deploy" }), true);
      await scene.until("the holder to be told", () => lock.signal.aborted);
      assert.equal((lock.signal.reason as LockLostError).reason, "revoked");
      assert.throws(() => lock.throwIfLost(), coded("LOCK_LOST"));
      assert.equal(await lock.release(), false);
      await (await next).release();
      assert.equal(await other.locks.revoke("key", lock.token), false, "it is nobody's any more");
    },
  );

  check("a lock removed at once is granted to the next", async (scene) => {
    const [one, other] = [await player(scene, { prefix: "app:" }), await player(scene)];
    const lock = await one.locks.acquire("key");
    assert.equal(await one.locks.revoke("key", lock.token, { now: true }), true, "the client's prefix is its affair");
    await passes(other.locks.mutex("app:key"), scene);
    await scene.until("the holder to be told", () => lock.signal.aborted);
    assert.equal(await lock.release(), false);
  });

  check("wrong arguments of revoke are told before anything is sent", async (scene) => {
    const { locks } = await player(scene);
    const wrong = locks.revoke as unknown as (...args: unknown[]) => Promise<boolean>;
    await assert.rejects(wrong("", 1n), /key must not be empty/);
    await assert.rejects(wrong("key", 1), /token must be a bigint, not 1/);
    await assert.rejects(wrong("key", 1n, { now: "yes" }), /now must be true or false/);
    await assert.rejects(wrong("key", 1n, { reason: 7 }), /reason must be a string/);
    await assert.rejects(wrong("key", 1n, { force: true }), /revoke has no option "force"/);
    await assert.rejects(wrong("key", 1n, null), /options of revoke must be an object/);
  });
}
