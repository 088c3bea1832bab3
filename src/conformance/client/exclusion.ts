/** The same promises for a mutex, a semaphore of one, a writer, and all() of one key. */

import assert from "node:assert/strict";
import type { Lockable } from "../../client/lockable.ts";
import type { Locks } from "../../client/locks.ts";
import type { LockTimeoutError } from "../../errors.ts";
import type { Check, Subject } from "../subject.ts";
import { coded, empty, passes, pending, placed, player } from "./players.ts";

interface Kind {
  readonly name: string;
  readonly of: (locks: Locks, key: string) => Lockable;
}

const KINDS: readonly Kind[] = [
  { name: "mutex", of: (locks, key) => locks.mutex(key) },
  { name: "write", of: (locks, key) => locks.rw(key).write },
  { name: "all of one key", of: (locks, key) => locks.all(key) },
];
const SEMAPHORE: Kind = { name: "semaphore of one", of: (locks, key) => locks.semaphore(key, 1) };

export function exclusion(check: Check, subject: Subject): void {
  for (const kind of KINDS) oneAtATime(check, kind, subject);
  if (subject.traits.permits === "any") oneAtATime(check, SEMAPHORE, subject);
}

function oneAtATime(check: Check, { name, of }: Kind, { traits }: Subject): void {
  check(`${name}: held by one, in this client and in others, until it is released`, async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await of(one.locks, "key").acquire();
    assert.deepEqual(lock.keys, ["key"]);
    assert.ok(lock.remainingMs > 0);
    lock.throwIfLost();
    assert.equal(await of(one.locks, "key").tryAcquire(), null);
    assert.equal(await of(other.locks, "key").tryAcquire(), null);
    await of(other.locks, "other key").using(() => undefined);
    assert.equal(await lock.release(), true);
    assert.equal(lock.remainingMs, 0);
    const next = await of(other.locks, "key").tryAcquire();
    assert.equal(await next?.release(), true);
  });

  check(`${name}: a wait ends with the release`, async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await of(one.locks, "key").acquire();
    const waits = [other, one].map(({ locks }) => pending(of(locks, "key").acquire()));
    // requests of one client stand behind each other there, unless each has a claim of its own
    await placed(scene, name === SEMAPHORE.name ? 3 : 2);
    await lock.release();
    await Promise.all(waits.map(async (wait) => (await wait).release()));
  });

  check(`${name}: using() lets in one at a time, and nobody loses a write`, async (scene) => {
    const players = [await player(scene), await player(scene), await player(scene, { handoffs: 1 })];
    let value = 0;
    let last = 0n;
    const add = async ({ locks }: (typeof players)[number]): Promise<void> => {
      for (let round = 0; round < 5; round++) {
        await of(locks, "key").using(async (lock) => {
          const read = value;
          if (traits.fencing) {
            assert.ok(lock.token > last, `${lock.token} after ${last}`);
            last = lock.token;
          }
          await scene.pause(round % 2);
          value = read + 1;
        });
      }
    };
    await Promise.all(players.flatMap((one) => [add(one), add(one), add(one), add(one)]));
    assert.equal(value, 60);
    await empty(scene);
  });

  check(
    `${name}: a wait that runs out names who was in the way, never ends early and leaves no place`,
    async (scene) => {
      const [one, other] = [await player(scene, { label: "ana" }), await player(scene)];
      const lock = await of(one.locks, "key").acquire();
      const startedAt = performance.now();
      await assert.rejects(of(other.locks, "key").acquire({ wait: 80 }), (error: LockTimeoutError) => {
        coded("LOCK_TIMEOUT")(error);
        assert.deepEqual(error.keys, ["key"]);
        assert.equal(error.blocked.holder, "ana");
        assert.ok((error.blocked.heldForMs ?? -1) >= 0);
        assert.equal(error.blocked.ahead, 1);
        assert.match(error.message, /ana/);
        return true;
      });
      assert.ok(performance.now() - startedAt >= 80, "a wait never ends early");
      await placed(scene, 1);
      await assert.rejects(of(other.locks, "key").acquire({ wait: 0 }), coded("LOCK_TIMEOUT"));
      await placed(scene, 1);
      await lock.release();
      await empty(scene);
      await passes(of(other.locks, "key"), scene);
    },
  );

  check(`${name}: release() answers once and for all, and using() gives what its body gives`, async (scene) => {
    const { locks } = await player(scene);
    const lock = await of(locks, "key").acquire();
    assert.deepEqual(await Promise.all([lock.release(), lock.release()]), [true, true]);
    assert.throws(() => lock.throwIfLost(), coded("LOCK_LOST"));
    assert.equal(await of(locks, "key").using(() => 7), 7);
    await assert.rejects(
      of(locks, "key").using(() => Promise.reject(new RangeError("body"))),
      RangeError,
    );
    const disposed = await of(locks, "key").acquire();
    await disposed[Symbol.asyncDispose]();
    await empty(scene);
  });
}
