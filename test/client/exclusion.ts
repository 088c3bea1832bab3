/** The same guarantees for a mutex, a semaphore of one, a writer, and all() of one key. */

import assert from "node:assert/strict";
import type { Lockable, Locks } from "../../src/client/locks.ts";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockTimeoutError } from "../../src/errors.ts";
import { assertFree, waitForClaims } from "./helpers.ts";

interface LockKind {
  readonly name: string;
  readonly create: (locks: Locks, key: string) => Lockable;
}

const KINDS: readonly LockKind[] = [
  { name: "mutex", create: (locks, key) => locks.mutex(key) },
  { name: "write", create: (locks, key) => locks.rw(key).write },
  { name: "all of one key", create: (locks, key) => locks.all(key) },
];
const SEMAPHORE: LockKind = { name: "semaphore of one", create: (locks, key) => locks.semaphore(key, 1) };

export function testExclusion(test: DefineTest, settings: ConformanceSettings): void {
  for (const kind of KINDS) testMutualExclusion(test, kind, settings);
  if (settings.traits.permits === "any") testMutualExclusion(test, SEMAPHORE, settings);
}

function testMutualExclusion(test: DefineTest, { name, create }: LockKind, { traits }: ConformanceSettings): void {
  test(`${name}: held by one, in this client and in others, until it is released`, async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await create(clientA.locks, "key").acquire();
    assert.deepEqual(lock.keys, ["key"]);
    assert.ok(lock.remainingMs > 0);
    lock.throwIfLost();
    assert.equal(await create(clientA.locks, "key").tryAcquire(), null);
    assert.equal(await create(clientB.locks, "key").tryAcquire(), null);
    await create(clientB.locks, "other key").using(() => undefined);
    assert.equal(await lock.release(), true);
    assert.equal(lock.remainingMs, 0);
    const next = await create(clientB.locks, "key").tryAcquire();
    assert.equal(await next?.release(), true);
  });

  test(`${name}: a wait ends with the release`, async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await create(clientA.locks, "key").acquire();
    const waits = [clientB, clientA].map(({ locks }) => deferRejection(create(locks, "key").acquire()));
    // requests of one client share a queue entry there, unless each has its own claim
    await waitForClaims(context, name === SEMAPHORE.name ? 3 : 2);
    await lock.release();
    for (const isReleased of await Promise.all(waits.map(async (wait) => (await wait).release())))
      assert.equal(isReleased, true);
  });

  test(`${name}: using() admits one at a time, and no write is lost`, async (context) => {
    const testClients = [
      await openTestClient(context),
      await openTestClient(context),
      await openTestClient(context, { order: "strict" }),
    ];
    let value = 0;
    let last = 0n;
    const add = async ({ locks }: (typeof testClients)[number]): Promise<void> => {
      for (let round = 0; round < 5; round++) {
        await create(locks, "key").using(async (lock) => {
          const readValue = value;
          if (traits.fencing) {
            assert.ok(lock.token > last, `${lock.token} after ${last}`);
            last = lock.token;
          }
          await context.sleep(round % 2);
          value = readValue + 1;
        });
      }
    };
    await Promise.all(
      testClients.flatMap((testClient) => [add(testClient), add(testClient), add(testClient), add(testClient)]),
    );
    assert.equal(value, 60);
    await waitForEmptyStore(context);
  });

  test(`${name}: a wait that times out names the holder, never ends early and leaves no entry`, async (context) => {
    const [clientA, clientB] = [await openTestClient(context, { label: "ana" }), await openTestClient(context)];
    const lock = await create(clientA.locks, "key").acquire();
    const startedAt = performance.now();
    await assert.rejects(create(clientB.locks, "key").acquire({ wait: 80 }), (error: LockTimeoutError) => {
      hasCode("LOCK_TIMEOUT")(error);
      assert.deepEqual(error.keys, ["key"]);
      if (traits.list === "own") {
        // the holder is another client's, so it has no name
        assert.equal(error.blocked.holder, undefined);
        return true;
      }
      assert.equal(error.blocked.holder, "ana");
      assert.ok((error.blocked.heldForMs ?? -1) >= 0);
      assert.equal(error.blocked.ahead, 1);
      assert.match(error.message, /ana/);
      return true;
    });
    assert.ok(performance.now() - startedAt >= 80, "a wait never ends early");
    await waitForClaims(context, 1);
    await assert.rejects(create(clientB.locks, "key").acquire({ wait: 0 }), hasCode("LOCK_TIMEOUT"));
    await waitForClaims(context, 1);
    await lock.release();
    await waitForEmptyStore(context);
    await assertFree(create(clientB.locks, "key"), context);
  });

  test(`${name}: release() answers once and for all, and using() gives what its body gives`, async (context) => {
    const { locks } = await openTestClient(context);
    const lock = await create(locks, "key").acquire();
    assert.deepEqual(await Promise.all([lock.release(), lock.release()]), [true, true]);
    assert.throws(() => lock.throwIfLost(), hasCode("LOCK_LOST"));
    assert.equal(await create(locks, "key").using(() => 7), 7);
    await assert.rejects(
      create(locks, "key").using(() => Promise.reject(new RangeError("body"))),
      RangeError,
    );
    const disposed = await create(locks, "key").acquire();
    await disposed[Symbol.asyncDispose]();
    await waitForEmptyStore(context);
  });
}
