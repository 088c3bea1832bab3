// Requests that do not wait, while the first call of another request of this process for the same key is under way: the answer to
// that call decides them, and none is told "busy" of a store that has not answered.

import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Lock } from "../../../src/index.ts";
import type { Answer, Claim } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";

interface Fixture {
  readonly locks: Locks;
  /** Another process. */
  readonly other: Locks;
  /** The claims that were sent, by their keys. */
  readonly sent: string[];
  /** Ends the next calls as the store does, or with this error. */
  answer(error?: Error): Promise<void>;
}

/** A store whose answers to claims come when they are asked for. */
function createFixture(): Fixture {
  const store = memoryStore();
  const inner = memory({ store });
  const sent: string[] = [];
  let pending: ((error?: Error) => void)[] = [];
  const claim = (made: Claim): Promise<Answer> => {
    sent.push(made.locks[0].key);
    return new Promise((resolve, reject) => {
      pending.push((error) => (error === undefined ? resolve(inner.claim(made)) : reject(error)));
    });
  };
  return {
    locks: createLocks(delegate(inner, { claim })),
    other: createLocks(memory({ store })),
    sent,
    async answer(error) {
      await until(() => pending.length > 0, { within: 10_000, what: "a call" });
      const calls = pending;
      pending = [];
      for (const end of calls) end(error);
    },
  };
}

function outcomes(requests: readonly Promise<unknown>[]): Promise<string[]> {
  return Promise.all(
    requests.map((request) =>
      request.then(
        (lock) => (lock === null ? "busy" : "granted"),
        (error: { readonly code: string }) => error.code,
      ),
    ),
  );
}

function tries({ locks }: Fixture, count: number): Promise<unknown>[] {
  return Array.from({ length: count }, (_, index) =>
    index % 2 === 0 ? locks.tryAcquire("k") : locks.acquire("k", { wait: 0 }),
  );
}

test("are busy once the other request has the lock", async () => {
  const fixture = createFixture();
  const first = fixture.locks.acquire("k");
  const settled = outcomes(tries(fixture, 4));
  await fixture.answer();
  expect(await settled).toEqual(["busy", "LOCK_TIMEOUT", "busy", "LOCK_TIMEOUT"]);
  await (await first).release();
  expect(fixture.sent).toEqual(["k"]);
  await fixture.locks.close();
});

test("are busy once the store has queued the other request", async () => {
  const fixture = createFixture();
  const holder = await fixture.other.acquire("k");
  const first = fixture.locks.acquire("k");
  const settled = outcomes(tries(fixture, 2));
  await fixture.answer();
  expect(await settled).toEqual(["busy", "LOCK_TIMEOUT"]);
  await holder.release();
  await (await first).release();
  await Promise.all([fixture.locks.close(), fixture.other.close()]);
});

test("reject when the call has failed, all of them at once", async () => {
  const fixture = createFixture();
  const first = fixture.locks.acquire("k");
  const settled = outcomes(tries(fixture, 4));
  await fixture.answer(new Error("no connection"));
  expect(await settled).toEqual(Array.from({ length: 4 }, () => "LOCK_STORE_FAILED"));
  expect(fixture.sent).toEqual(["k"]);
  await fixture.answer(); // the call of the one that waits is repeated
  await (await first).release();
  await fixture.locks.close();
});

test("of many that do not wait one asks, and its answer is that of all", async () => {
  const fixture = createFixture();
  const granted = outcomes(tries(fixture, 4));
  await fixture.answer();
  expect(await granted).toEqual(["granted", "LOCK_TIMEOUT", "busy", "LOCK_TIMEOUT"]);
  await fixture.locks.releaseAll();

  const holder = await fixture.other.acquire("k");
  const refused = outcomes(tries(fixture, 4));
  await fixture.answer();
  expect(await refused).toEqual(["busy", "LOCK_TIMEOUT", "busy", "LOCK_TIMEOUT"]);
  await holder.release();

  const failed = outcomes(tries(fixture, 4));
  await fixture.answer(new Error("no connection"));
  expect(await failed).toEqual(Array.from({ length: 4 }, () => "LOCK_STORE_FAILED"));
  expect(fixture.sent).toEqual(["k", "k", "k"]);
  await Promise.all([fixture.locks.close(), fixture.other.close()]);
});

test("take the place of the request that has asked, if that one is cancelled", async () => {
  const fixture = createFixture();
  const controller = new AbortController();
  const first = outcomes([fixture.locks.acquire("k", { signal: controller.signal })]);
  const settled = outcomes(tries(fixture, 2));
  controller.abort(Object.assign(new Error("enough"), { code: "ENOUGH" }));
  expect(await first).toEqual(["ENOUGH"]);
  await fixture.answer();
  expect(await settled).toEqual(["granted", "LOCK_TIMEOUT"]);
  await fixture.locks.close();
});

test("a listener that withdraws one that is about to be rejected: each ends once, and the one behind them gets the lock", async () => {
  const fixture = createFixture();
  const controller = new AbortController();
  const failed: string[] = [];
  fixture.locks.on("failed", ({ outcome }) => {
    failed.push(outcome);
    controller.abort(Object.assign(new Error("enough"), { code: "ENOUGH" }));
  });
  const settled = outcomes([
    fixture.locks.acquire("k", { wait: 0 }),
    fixture.locks.acquire("k", { wait: 0, signal: controller.signal }),
  ]);
  const last = fixture.locks.acquire("k");
  await fixture.answer(new Error("no connection"));
  expect(await settled).toEqual(["LOCK_STORE_FAILED", "ENOUGH"]);
  expect(failed.sort()).toEqual(["cancelled", "error"]);
  await fixture.answer();
  await (await last).release();
  await fixture.locks.close();
});

test("a listener that asks again at once shares its claim with the next request", async () => {
  const fixture = createFixture();
  const holder = await fixture.other.acquire("k");
  const again: Promise<unknown>[] = [];
  fixture.locks.on("failed", () => {
    if (again.length === 0) again.push(fixture.locks.acquire("k", { wait: "10s" }));
  });
  const first = outcomes(tries(fixture, 1));
  await fixture.answer();
  expect(await first).toEqual(["busy"]);
  const next = fixture.locks.acquire("k");
  await fixture.answer();
  expect(fixture.sent).toEqual(["k", "k"]);
  await holder.release();
  await ((await again[0]) as Lock).release();
  await fixture.answer(); // the range of the first claim had one token
  await (await next).release();
  await Promise.all([fixture.locks.close(), fixture.other.close()]);
});

test("a listener that asks again at once makes one claim, not two", async () => {
  const fixture = createFixture();
  const holder = await fixture.other.acquire("k");
  const again: Promise<unknown>[] = [];
  fixture.locks.on("failed", () => {
    if (again.length === 0) again.push(fixture.locks.tryAcquire("k"));
  });
  const first = outcomes(tries(fixture, 1));
  await fixture.answer();
  expect(await first).toEqual(["busy"]);
  await fixture.answer();
  expect(await outcomes(again)).toEqual(["busy"]);
  expect(fixture.sent).toEqual(["k", "k"]);
  await holder.release();
  await Promise.all([fixture.locks.close(), fixture.other.close()]);
});
