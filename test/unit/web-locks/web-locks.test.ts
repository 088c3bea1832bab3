// The Web Locks API over memory: the behaviours of the web-platform tests, and what the standard leaves open.

import assert from "node:assert/strict";
import { afterEach, describe, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { createTestLocks } from "../../../src/testing/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { WebLock, WebLockManager } from "../../../src/web-locks/index.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import { withTraits } from "../../support/driver-events.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { defineWebLockTests } from "../../support/web-lock-behaviors.ts";

checkLeaksAfterEach();

const clients: Locks[] = [];

function openLocks(driver: Driver, options?: LocksOptions): Locks {
  const locks = createLocks(driver, options);
  clients.push(locks);
  return locks;
}

afterEach(async () => {
  for (const locks of clients.splice(0)) await locks.close();
});

const isDomException = (name: string) => (error: unknown) => error instanceof DOMException && error.name === name;

describe("over memory", () => {
  defineWebLockTests(async () => webLocks(openLocks(memory())));
});

describe("over memory, of a client in strict order", () => {
  defineWebLockTests(async () => webLocks(openLocks(memory(), { order: "strict" })));
});

const native = (globalThis as { readonly navigator?: { readonly locks?: unknown } }).navigator?.locks;
describe.skipIf(native === undefined)("navigator.locks of this Node, to which the same applies", () => {
  defineWebLockTests(
    async () => native as WebLockManager,
    ["a thrown thenable is called", "an aborted request stays pending"],
  );
});

describe("several clients of one store", () => {
  function openTwo(label = "second"): readonly [WebLockManager, WebLockManager, Locks] {
    const store = memoryStore();
    const [first, second] = [openLocks(memory({ store }), { label: "first" }), openLocks(memory({ store }), { label })];
    return [webLocks(first), webLocks(second), second];
  }

  test("they exclude each other, and query() tells them apart by their labels", async () => {
    const [one, two] = openTwo();
    await one.request("name", async () => {
      assert.equal(await two.request("name", { ifAvailable: true }, (lock) => lock), null);
      const waiting = two.request("name", () => "granted");
      await until(async () => (await one.query()).pending.length === 1, { within: 5_000, what: "the waiter" });
      assert.deepEqual(await one.query(), {
        held: [{ name: "name", mode: "exclusive", clientId: "first" }],
        pending: [{ name: "name", mode: "exclusive", clientId: "second" }],
      });
      queueMicrotask(() => void waiting);
    });
    await until(async () => (await one.query()).held.length === 0, { within: 5_000, what: "the end" });
  });

  test("a lock of another client is stolen: its request rejects, its callback sees it, the token rises", async () => {
    const [one, two] = openTwo();
    let lost: WebLock | null = null;
    const victim = one.request("name", (lock) => {
      lost = lock;
      return new Promise((resolve) => lock?.signal.addEventListener("abort", () => resolve("too late")));
    });
    const rejected = assert.rejects(victim, isDomException("AbortError"));
    await until(() => lost, { within: 5_000, what: "the holder" });
    const token = await two.request("name", { steal: true }, (lock) => lock?.token ?? 0n);
    await rejected;
    const { signal, token: lostToken } = lost as unknown as WebLock;
    assert.ok(isDomException("AbortError")(signal.reason));
    assert.ok(token > lostToken);
  });

  test("a request of another client that waits is not overtaken by a steal", async () => {
    const [one, two] = openTwo();
    const order: string[] = [];
    const victim = one.request(
      "name",
      (lock) => new Promise((resolve) => lock?.signal.addEventListener("abort", resolve)),
    );
    const rejected = assert.rejects(victim, isDomException("AbortError"));
    const waiting = one.request("name", () => order.push("waiting"));
    await until(async () => (await two.query()).pending.length === 1, { within: 5_000, what: "the waiter" });
    await two.request("name", { steal: true }, () => order.push("steals"));
    await Promise.all([waiting, rejected]);
    assert.deepEqual(order, ["waiting", "steals"]);
  });

  test("more holders than a list shows lose it, and a request of theirs that waits keeps its turn", async () => {
    const [one, , locks] = openTwo();
    const { read, write } = locks.rw("name");
    const readers = await Promise.all(Array.from({ length: 1_050 }, () => read.acquire()));
    const writer = write.using(() => "its turn");
    assert.equal(await one.request("name", { steal: true }, () => "stolen"), "stolen");
    assert.equal(readers.filter(({ signal }) => signal.aborted).length, readers.length);
    assert.equal(await writer, "its turn");
  });

  test("only holders of this name lose it, not those of names that begin with it", async () => {
    const [one, two, locks] = openTwo();
    const other = await locks.acquire("name and more");
    const both = await locks.all("a", "name").acquire();
    assert.equal(await one.request("name", { steal: true }, () => "stolen"), "stolen");
    other.throwIfLost();
    assert.equal(both.signal.aborted, true);
    assert.equal(await two.request("a", { ifAvailable: true }, (lock) => lock?.name), "a");
  });
});

describe("steal", () => {
  test.each([{}, { order: "strict" }] as const)(
    "a request of a client with %o that waits while another one steals keeps its place behind that one",
    async (options) => {
      const locks = openLocks(memory(), options);
      const manager = webLocks(locks);
      const order: string[] = [];
      let releaseFirst = (): void => {};
      const first = manager.request("name", () => new Promise<void>((resolve) => (releaseFirst = resolve)));
      const second = manager.request("name", () => order.push("second"));
      const untilLost = (lock: WebLock | null): Promise<unknown> => {
        order.push("third");
        return new Promise((resolve) => lock?.signal.addEventListener("abort", resolve));
      };
      const lost = assert.rejects(manager.request("name", untilLost), { message: 'the lock "name" was stolen' });
      const fourth = manager.request("name", () => order.push("fourth"));
      await until(async () => (await locks.list()).length === 4, { within: 5_000, what: "those who wait" });
      releaseFirst();
      await Promise.all([first, second]);
      await until(() => order.length === 2, { within: 5_000, what: "the third holder" });
      const stealing = manager.request("name", { steal: true }, () => order.push("stealing"));
      await Promise.all([stealing, fourth, lost]);
      assert.deepEqual(order, ["second", "third", "stealing", "fourth"]);
    },
  );

  /** Calls take turns of the event loop on their way to the store and back. */
  function slow(driver: Driver): Driver {
    const travel = async <T>(call: () => Promise<T>, turns = 1): Promise<T> => {
      await flushEventLoop(turns);
      const answer = await call();
      await flushEventLoop(turns);
      return answer;
    };
    return delegate(driver, {
      claim: (claim) => travel(() => driver.claim(claim), 3),
      release: (releases) => travel(() => driver.release(releases)),
      list: (query, options) => travel(() => driver.list(query, options)),
    });
  }

  test.each([{ ifAvailable: true }, { steal: true }])(
    "takes the lock also from a request with %o that is on its way to the store or back",
    async (options) => {
      for (let turns = 0; turns < 10; turns++) {
        const locks = openLocks(slow(memory()));
        const manager = webLocks(locks);
        const end = new AbortController();
        const first = manager.request("name", options, (lock) =>
          lock === null
            ? "not available"
            : new Promise<string>((resolve) => end.signal.addEventListener("abort", () => resolve("too late"))),
        );
        const hasLost = first.then(
          (result) => result === "not available",
          (error: unknown) => isDomException("AbortError")(error),
        );
        await flushEventLoop(turns);
        assert.equal(await manager.request("name", { steal: true }, () => "stolen"), "stolen");
        assert.ok(await hasLost);
        end.abort();
        await until(async () => (await locks.list()).length === 0, { within: 5_000, what: "the end" });
      }
    },
  );

  test("inside using() of the name it joins the lock; from elsewhere it takes a lock that a request has joined", async () => {
    const locks = openLocks(memory());
    const manager = webLocks(locks);
    await locks.using("name", async ({ token, signal }) => {
      assert.equal(await manager.request("name", { steal: true }, (lock) => lock?.token), token);
      assert.equal(signal.aborted, false);
    });
    let hasJoined = false;
    const victim = locks.using("name", ({ signal }) =>
      manager.request("name", () => {
        hasJoined = true;
        return new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      }),
    );
    const rejected = assert.rejects(victim, isDomException("AbortError"));
    await until(() => hasJoined, { within: 5_000, what: "the request that joins" });
    assert.equal(await manager.request("name", { steal: true }, () => "stolen"), "stolen");
    await rejected;
    assert.deepEqual(await locks.list(), []);
  });
});

describe("a lock that is lost", () => {
  test("a process that was stopped learns of it by reading the signal, before its timers run", async () => {
    const clock = new FakeClock();
    const locks = openLocks(memory({ store: memoryStore(clock) }), { clock });
    let end = (): void => {};
    const request = webLocks(locks).request("name", (lock) => {
      clock.jump(60_000);
      assert.equal(lock?.signal.aborted, true);
      return new Promise<void>((resolve) => {
        end = resolve;
      });
    });
    await assert.rejects(request, isDomException("AbortError"));
    end();
  });

  test("the request rejects with AbortError at once, although the callback has not settled", async () => {
    const locks = createTestLocks();
    let finish = (_value: string): void => {};
    let lock: WebLock | null = null;
    const request = webLocks(locks).request("name", (granted) => {
      lock = granted;
      return new Promise<string>((resolve) => {
        finish = resolve;
      });
    });
    const rejected = assert.rejects(request, (error: DOMException) => {
      assert.equal((error.cause as { reason?: unknown }).reason, "expired");
      return isDomException("AbortError")(error);
    });
    await locks.advance(0);
    locks.lose("name");
    await rejected;
    assert.ok(isDomException("AbortError")((lock as unknown as WebLock).signal.reason));
    finish("unheard");
    await locks.advance(0);
    assert.deepEqual(locks.heldKeys(), []);
    await locks.close();
  });

  test("after maxHold the next holder waits for the callback, not only for the rejection", async () => {
    const locks = createTestLocks({ maxHold: "1s" });
    const manager = webLocks(locks);
    let finish = (): void => {};
    const request = manager.request(
      "name",
      () =>
        new Promise<void>((resolve) => {
          finish = resolve;
        }),
    );
    const rejected = assert.rejects(request, isDomException("AbortError"));
    const next = manager.request("name", () => "next");
    let isGranted = false;
    void next.then(() => {
      isGranted = true;
    });
    await locks.advance("2s");
    await rejected;
    assert.equal(isGranted, false, "the callback is still at work");
    finish();
    assert.equal(await next, "next");
    await locks.close();
  });

  test("an error of the callback takes precedence, and is no unhandled rejection after a loss", async () => {
    const locks = createTestLocks();
    const manager = webLocks(locks);
    const failure = new Error("of the callback");
    await assert.rejects(
      manager.request("name", () => {
        throw failure;
      }),
      failure,
    );
    const late = manager.request("name", async (lock) => {
      await new Promise((resolve) => lock?.signal.addEventListener("abort", resolve));
      throw failure;
    });
    const rejected = assert.rejects(late, isDomException("AbortError"));
    await locks.advance(0);
    locks.lose("name");
    await rejected;
    await locks.advance(0);
    await locks.close();
  });
});

describe("what a store cannot do is NotSupportedError", () => {
  test("shared locks without permits", async () => {
    const driver = memory();
    const manager = webLocks(openLocks(delegate(driver, withTraits(driver, { permits: "one" }))));
    await assert.rejects(
      manager.request("name", { mode: "shared" }, () => {}),
      isDomException("NotSupportedError"),
    );
  });

  test("stealing from others without revoke(), without tokens, or without a list of others", async () => {
    const store = memoryStore();
    const driver = memory({ store });
    const { revoke: _none, ...withoutRevoke } = driver;
    await openLocks(memory({ store })).acquire("name");
    for (const limited of [
      withoutRevoke,
      delegate(driver, withTraits(driver, { fencing: false })),
      delegate(driver, withTraits(driver, { list: "own" })),
    ]) {
      const manager = webLocks(openLocks(limited));
      await assert.rejects(
        manager.request("name", { steal: true }, () => {}),
        isDomException("NotSupportedError"),
      );
    }
  });
});

test("names are keys of the client: its prefix applies, and what is no key is refused", async () => {
  const store = memoryStore();
  const manager = webLocks(openLocks(memory({ store }), { prefix: "app:", label: "x" }));
  await manager.request("name", async () => {
    assert.ok(tableOf(store).queues.has("app:name"));
    assert.deepEqual((await manager.query()).held, [{ name: "name", mode: "exclusive", clientId: "x" }]);
  });
  for (const name of ["", "a\u0000b", "\ud800", 7 as never]) {
    await assert.rejects(
      manager.request(name, () => {}),
      (error: Error) => {
        assert.match(error.message, /^name must/);
        return error instanceof TypeError;
      },
    );
  }
  assert.throws(() => webLocks({} as Locks), /locks must be what connect\(\) or createLocks\(\) returns/);
});

test("the client's wait applies to requests: LockTimeoutError", async () => {
  const locks = createTestLocks({ wait: "1s" });
  locks.busy("name");
  const rejected = assert.rejects(
    webLocks(locks).request("name", () => {}),
    { code: "LOCK_TIMEOUT" },
  );
  await locks.advance("1s");
  await rejected;
  await locks.close();
});
