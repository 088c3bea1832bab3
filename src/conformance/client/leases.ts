/** A held lock is kept as long as it is wanted; a lost one is told by the client's own clock. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Clock } from "../../clock.ts";
import { systemClock } from "../../clock.ts";
import type { LockLostError } from "../../errors.ts";
import type { Scene } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";
import type { Player } from "./players.ts";
import { coded, empty, passes, pending, player, stateOf } from "./players.ts";

export function leases(check: Check, subject: Subject): void {
  if (!subject.traits.lease.claim) return;

  check("a held lock is renewed, and so is a waiting one", async (scene) => {
    const ttl = scene.lease(400);
    const [one, other] = [await player(scene, { ttl }), await player(scene, { ttl })];
    const lock = await one.locks.acquire("key");
    const waits = pending(other.locks.acquire("key"));
    const { token } = lock;
    const end = performance.now() + 1.5 * ttl;
    await scene.until("a lease and a half to pass", () => {
      lock.throwIfLost();
      return performance.now() >= end;
    });
    assert.equal(await stateOf(waits), "pending");
    assert.equal(lock.token, token);
    assert.equal(await lock.release(), true);
    await (await waits).release();
  });

  check("clients whose wall clocks are hours off exclude each other all the same", async (scene) => {
    const off = (hours: number): Clock => ({ ...systemClock, wall: () => Date.now() + hours * 3_600_000 });
    const ttl = scene.lease(400);
    const [slow, fast] = [await player(scene, { ttl, clock: off(-5) }), await player(scene, { ttl, clock: off(5) })];
    const lock = await slow.locks.acquire("key");
    const waits = pending(fast.locks.acquire("key"));
    const end = performance.now() + 1.2 * ttl;
    await scene.until("more than a lease to pass", () => {
      lock.throwIfLost();
      return performance.now() >= end;
    });
    assert.equal(await stateOf(waits), "pending");
    assert.equal(await lock.release(), true);
    const next = await waits;
    if (subject.traits.fencing) assert.ok(next.token > lock.token);
    assert.equal(await next.release(), true);
  });

  losses(check, subject);

  check("renew: false sends no renewal, and the lease is what ttl says", async (scene) => {
    const [one, other] = [await player(scene, { renew: false, ttl: scene.brief }), await player(scene)];
    const startedAt = performance.now();
    const lock = await one.locks.acquire("key");
    const next = await other.locks.acquire("key", { wait: scene.ms(5_000) });
    assert.ok(performance.now() - startedAt >= scene.brief * 0.99 - 2);
    assert.throws(() => lock.throwIfLost(), coded("LOCK_LOST"));
    assert.equal(one.line.calls("renew"), 0);
    assert.equal(await lock.release(), false);
    await next.release();
  });

  check("a holder that stays longer than maxHold is given up", async (scene) => {
    const [one, other] = [await player(scene, { maxHold: 60, ttl: scene.brief }), await player(scene)];
    const lock = await one.locks.acquire("key");
    const waits = pending(other.locks.acquire("key", { wait: scene.ms(5_000) }));
    await aborted(scene, lock, "maxHold");
    assert.equal(await lock.release(), false);
    await (await waits).release();
  });

  if (!subject.verbs.includes("revoke")) return;

  check("a revoked lock is lost with that reason, and its place is kept until its holder lets go", async (scene) => {
    const [one, other] = [await player(scene, { ttl: scene.lease(900) }), await player(scene)];
    const { driver } = await scene.client();
    const lock = await one.locks.acquire("key");
    const waits = pending(other.locks.acquire("key"));
    assert.deepEqual(await driver.revoke?.([{ key: "key", token: lock.token, now: false }]), [true]);
    await aborted(scene, lock, "revoked");
    assert.equal(await stateOf(waits), "pending");
    assert.equal(await lock.release(), false);
    await (await waits).release();
  });
}

function losses(check: Check, { traits }: Subject): void {
  check("a client that is cut off is told by its own clock, before the next holder is let in", async (scene) => {
    const [one, other] = [await player(scene, { ttl: scene.brief }), await player(scene)];
    const startedAt = performance.now();
    const lock = await one.locks.acquire("key");
    const waits = pending(other.locks.acquire("key", { wait: scene.ms(5_000) }));
    one.line.cut();
    const told = pending(aborted(scene, lock, "expired").then(() => performance.now()));
    const granted = pending(waits.then(() => performance.now()));
    const [toldAt, grantedAt] = await Promise.all([told, granted]);
    // the timers of a stalled process fire late and together; the clock that throwIfLost() reads does not
    if (toldAt - startedAt < scene.brief) assert.ok(toldAt <= grantedAt);
    assert.throws(() => lock.throwIfLost(), coded("LOCK_LOST"));
    assert.equal(lock.remainingMs, 0);
    assert.equal(await lock.release(), false);
    one.line.heal();
    const next = await waits;
    if (traits.fencing) assert.ok(next.token > lock.token);
    next.throwIfLost();
    assert.equal(await next.release(), true);
    await passes(one.locks.mutex("key"), scene);
  });

  check("using() rejects with LockLostError if the lock was lost, although the body succeeded", async (scene) => {
    const one = await player(scene, { ttl: scene.lease(150) });
    const lost = one.locks.using("key", async (lock) => {
      await cutOff(scene, one, lock);
      return "done";
    });
    await assert.rejects(lost, coded("LOCK_LOST"));
    await empty(scene);
  });

  check("the body's own error wins over the loss", async (scene) => {
    const one = await player(scene, { ttl: scene.lease(150) });
    const failed = one.locks.using("key", async (lock) => {
      await cutOff(scene, one, lock);
      throw new RangeError("body");
    });
    await assert.rejects(failed, RangeError);
    await empty(scene);
  });

  check("a lost lock that is disposed of throws, unless it was released before", async (scene) => {
    const one = await player(scene, { ttl: scene.lease(150) });
    const [lock, released] = [await one.locks.acquire("key"), await one.locks.acquire("other")];
    await released.release();
    await cutOff(scene, one, lock);
    await assert.rejects(async () => lock[Symbol.asyncDispose](), coded("LOCK_LOST"));
    await released[Symbol.asyncDispose]();
  });

  check("a short outage puts a lock in jeopardy and restores it, with the same token", async (scene) => {
    const one = await player(scene, { ttl: scene.lease(1_200) });
    const told: string[] = [];
    for (const event of ["jeopardy", "restored", "lost", "storeDown", "storeUp"] as const) {
      one.locks.on(event, () => told.push(event));
    }
    const lock = await one.locks.acquire("key");
    const { token } = lock;
    one.line.cut();
    await scene.until("jeopardy", () => told.includes("jeopardy"));
    lock.throwIfLost();
    one.line.heal();
    await scene.until("the end of jeopardy", () => told.includes("restored"));
    lock.throwIfLost();
    assert.equal(lock.token, token);
    assert.deepEqual(told.sort(), ["jeopardy", "restored", "storeDown", "storeUp"]);
    assert.equal(await lock.release(), true);
  });

  check("a release that could not be answered in time is repeated until the store has forgotten", async (scene) => {
    const [one, other] = [await player(scene, { ttl: scene.lease(900) }), await player(scene)];
    const lock = await one.locks.acquire("key");
    one.line.loseNextReply("release");
    assert.equal(
      await lock.release(),
      true,
      "its first release reached the store; that the second found nothing is no loss",
    );
    const again = await one.locks.acquire("key");
    one.line.loseNextCall("release", 2);
    assert.equal(await again.release(), true);
    await passes(other.locks.mutex("key"), scene);
  });
}

/** Waits until the lock's signal is aborted for this reason. */
async function aborted(scene: Scene, { signal }: Lock, reason: LockLostError["reason"]): Promise<void> {
  await scene.until(`the signal of a lock that is ${reason}`, () => signal.aborted);
  coded("LOCK_LOST")(signal.reason);
  assert.equal((signal.reason as LockLostError).reason, reason);
}

/** Cuts the line until the lock is lost. */
async function cutOff(scene: Scene, { line }: Player, lock: Lock): Promise<void> {
  line.cut();
  await aborted(scene, lock, "expired");
  line.heal();
}
