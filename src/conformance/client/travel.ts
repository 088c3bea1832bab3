/** A detached lock is taken up elsewhere (`detach`, `attach`). */

import assert from "node:assert/strict";
import type { LockLostError } from "../../errors.ts";
import type { Check, Subject } from "../subject.ts";
import { coded, empty, passes, player } from "./players.ts";

export function travel(check: Check, { traits, verbs }: Subject): void {
  if (!traits.lease.claim) return;
  const detaches = verbs.includes("detach");

  check("a detached lock outlives its client and is the same lock where it is attached", async (scene) => {
    const [one, other, third] = [await player(scene), await player(scene), await player(scene)];
    const lock = await one.locks.acquire("key");
    const { token } = lock;
    const reference = await lock.detach();
    assert.equal(await lock.release(), false, "it is not this client's any more");
    await one.locks.close();
    assert.equal(await third.locks.tryAcquire("key"), null);
    const taken = await other.locks.attach(reference);
    assert.deepEqual(taken.keys, ["key"]);
    assert.equal(taken.token, token);
    taken.throwIfLost();
    assert.ok(taken.remainingMs > 0);
    assert.equal(await taken.release(), true);
    await passes(third.locks.mutex("key"), scene);
    await assert.rejects(other.locks.attach(reference), coded("LOCK_LOST"));
  });

  check("an attached lock is renewed; nobody renews it before", async (scene) => {
    const ttl = scene.lease(400);
    const [one, other] = [await player(scene, { ttl }), await player(scene)];
    await other.locks.list(""); // it is connected: that may take longer than the lease
    const reference = await (await one.locks.acquire("key")).detach();
    const taken = await other.locks.attach(reference);
    const end = performance.now() + 1.5 * ttl;
    await scene.until("a lease and a half to pass", () => {
      taken.throwIfLost();
      return performance.now() >= end;
    });
    const again = await taken.detach();
    assert.equal(again, reference);
    await scene.until("its lease to end", async () => (await other.locks.list("")).length === 0);
    await assert.rejects(other.locks.attach(again), (error: LockLostError) => {
      coded("LOCK_LOST")(error);
      return error.reason === "expired" || error.reason === "unknown";
    });
  });

  check("a lock detached for a time is free after it, and attaching it restarts its full lease", async (scene) => {
    const [one, other] = [await player(scene, { ttl: 60_000 }), await player(scene, { ttl: 60_000 })];
    const left = scene.lease(400);
    const lock = await one.locks.all("a", "b").acquire();
    const kept = await (await one.locks.acquire("kept")).detach({ ttl: left });
    const since = performance.now();
    const away = await lock.detach({ ttl: left });
    assert.equal(await lock.release(), false, "it is not this client's any more");
    await one.locks.close();
    const taken = await other.locks.attach(kept);
    assert.ok(taken.remainingMs > left || !detaches, `attached for a full lease, not ${taken.remainingMs} ms`);
    if (!detaches) {
      await taken.release();
      return void (await (await other.locks.attach(away)).release());
    }
    assert.equal(await (await other.locks.all("a", "b").acquire()).release(), true);
    assert.ok(performance.now() - since >= left - 1, "it was held for as long as was said");
    taken.throwIfLost();
    assert.equal(await taken.release(), true);
  });

  check("several keys travel together, and releasing them frees all", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await one.locks.all("a", "b").acquire();
    const tokens = lock.keys.map((key) => lock.tokenOf(key));
    const taken = await other.locks.attach(await lock.detach());
    assert.deepEqual(
      taken.keys.map((key) => taken.tokenOf(key)),
      tokens,
    );
    assert.equal(await taken.release(), true);
    await empty(scene);
  });

  check("a lock inside using() cannot be detached, and a damaged reference is a TypeError", async (scene) => {
    const { locks } = await player(scene);
    await locks.using("key", async (lock) => {
      await assert.rejects(lock.detach(), coded("UNSUPPORTED"));
      lock.throwIfLost();
    });
    const lock = await locks.acquire("key");
    const reference = await lock.detach();
    for (const damaged of ["", "x", reference.slice(0, -1), `${reference.slice(0, 20)}A${reference.slice(21)}`]) {
      if (damaged !== reference) await assert.rejects(locks.attach(damaged), TypeError);
    }
    assert.equal(await (await locks.attach(reference)).release(), true);
  });
}
