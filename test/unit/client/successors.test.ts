// Strict order (`order: "strict"`): the client hands the lock on to the requests whose claims the store has named as successors.

import { setImmediate as waitForTurn } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { Lock } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { FakeClock } from "../../support/fake-clock.ts";

interface Fixture {
  readonly clock: FakeClock;
  readonly store: MemoryStore;
  /** Two clients, A and B. */
  readonly a: Locks;
  readonly b: Locks;
  /** Who got the lock, in order. */
  readonly order: string[];
  readonly handedOff: number[];
  /** Requests the lock; `name` goes to `order` when it is granted. */
  request(locks: Locks, name: string, options?: object): Promise<Lock>;
}

function createFixture(change: (driver: Driver) => Driver = (driver) => driver): Fixture {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const [a, b] = [0, 1].map(() => createLocks(change(memory({ store })), { clock, order: "strict" })) as [Locks, Locks];
  const order: string[] = [];
  const handedOff: number[] = [];
  a.on("handedOff", ({ token }) => handedOff.push(Number(token)));
  onTestFinished(async () => {
    await Promise.all([a.close(), b.close()]);
    expect(tableOf(store).records.size).toBe(0);
  });
  return {
    clock,
    store,
    a,
    b,
    order,
    handedOff,
    async request(locks, name, options = {}) {
      const lock = await locks.acquire("k", options);
      order.push(name);
      return lock;
    },
  };
}

/** A turn of the event loop: pushes and answers of the memory driver have arrived, and waiters gone on. */
const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 3; turn++) await waitForTurn();
};

/** Takes each lock when it is granted, in turn, and returns the tokens in that order. */
async function takeInTurn(requests: readonly Promise<Lock>[]): Promise<bigint[]> {
  const tokens: bigint[] = [];
  const use = async (request: Promise<Lock>): Promise<void> => {
    const lock = await request;
    tokens.push(lock.token);
    await waitForTurn();
    expect(await lock.release()).toBe(true);
  };
  await Promise.all(requests.map(use));
  return tokens;
}

test("the order of all clients is that of arrival; in between the lock passes within a client, and tokens rise", async () => {
  const { a, b, store, order, handedOff, request } = createFixture();
  const first = await request(b, "first");
  const names = ["a1", "a2", "a3", "b1", "a4", "a5", "b2"];
  const requests: Promise<Lock>[] = [];
  for (const name of names) {
    requests.push(request(name.startsWith("a") ? a : b, name));
    await settle();
  }
  await first.release();
  const tokens = await takeInTurn(requests);
  expect(order).toEqual(["first", ...names]);
  expect(tokens).toEqual([...tokens].sort((one, other) => Number(one - other)));
  expect(new Set(tokens).size).toBe(tokens.length);
  // a2, a3 and a5
  expect(handedOff).toEqual([1, 2, 5].map((index) => Number(tokens[index])));
  expect(tableOf(store).records.size).toBe(0);
});

test("a request that asks for strict order itself is served in its turn, but is not handed on", async () => {
  const { a, b, handedOff, order, request } = createFixture();
  const first = await request(b, "first");
  const requests = [{}, {}, { order: "strict" }, {}].map((options, index) => request(a, `a${index}`, options));
  await settle();
  await first.release();
  const tokens = await takeInTurn(requests);
  expect(order).toEqual(["first", "a0", "a1", "a2", "a3"]);
  expect(handedOff).toEqual([Number(tokens[1])]);
});

test("on another client, too, it has a claim of its own, which is not handed on", async () => {
  const { b, store, request } = createFixture();
  const other = createLocks(memory({ store }), { order: "process" });
  const handedOff: unknown[] = [];
  other.on("handedOff", (detail) => handedOff.push(detail));
  const first = await request(b, "first");
  const requests = [1, 2, 3].map((index) => request(other, `o${index}`, { order: "strict" }));
  await settle();
  expect(tableOf(store).records.size).toBe(4);
  await first.release();
  await takeInTurn(requests);
  expect(handedOff).toEqual([]);
  await other.close();
});

test("a waiter that was aborted or timed out is skipped, and leaves nothing", async () => {
  const { a, b, clock, order, request } = createFixture();
  const first = await request(b, "first");
  const abort = new AbortController();
  const requests = [request(a, "a1")];
  const aborted = request(a, "a2", { signal: abort.signal });
  const late = request(a, "a3", { wait: "1s" });
  requests.push(request(a, "a4"));
  await settle();
  await first.release();
  const held = await (requests[0] as Promise<Lock>);
  abort.abort(new Error("not needed"));
  await expect(aborted).rejects.toThrow("not needed");
  await Promise.all([expect(late).rejects.toThrow(/waited/), clock.advance(1_001)]);
  await held.release();
  const last = await (requests[1] as Promise<Lock>);
  expect(order).toEqual(["first", "a1", "a4"]);
  expect(last.token).toBe(held.token + 3n);
  await last.release();
});

test("a successor that the store has granted meanwhile gets no second grant", async () => {
  const { a, b, order, request } = createFixture();
  const first = await request(b, "first");
  const [one, two, three] = ["a1", "a2", "a3"].map((name) => request(a, name)) as [
    Promise<Lock>,
    Promise<Lock>,
    Promise<Lock>,
  ];
  await settle();
  await first.release();
  const held = await one;
  // an operator takes the lock from a1 at once: the store grants to a2
  expect(await b.revoke("k", held.token, { now: true })).toBe(true);
  const second = await two;
  expect(await held.release()).toBe(false);
  await settle();
  expect(order).toEqual(["first", "a1", "a2"]);
  expect(second.token).toBeGreaterThan(held.token + 2n);
  await second.release();
  await (await three).release();
  expect(order).toEqual(["first", "a1", "a2", "a3"]);
});

test.each<[string, object]>([
  ["another label", { label: "other" }],
  ["another ttl", { ttl: "20s" }],
])("a request with %s is granted by the store", async (_, options) => {
  const { a, b, order, handedOff, request } = createFixture();
  const first = await request(b, "first");
  const requests = [request(a, "a1"), request(a, "a2", options), request(a, "a3")];
  await settle();
  await first.release();
  await takeInTurn(requests);
  expect(order).toEqual(["first", "a1", "a2", "a3"]);
  expect(handedOff).toEqual([]);
});

test("with less than half of the lease left, the store grants to the next one", async () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const locks = createLocks(memory({ store }), { clock, order: "strict", ttl: "10s", renew: false });
  const handedOff: unknown[] = [];
  locks.on("handedOff", (event) => handedOff.push(event));
  const first = await locks.acquire("k");
  const [one, two] = [locks.acquire("k"), locks.acquire("k")];
  await settle();
  await first.release();
  const held = await one;
  await clock.advance(6_000);
  const [, next] = await Promise.all([held.release(), two]);
  expect(handedOff).toEqual([]);
  expect(next.remainingMs).toBeGreaterThan(2_000);
  await next.release();
  await locks.close();
});

test("the loss of the lock reaches the holder to which it was handed on", async () => {
  const { a, b, request } = createFixture();
  const first = await request(b, "first");
  const [one, two] = [request(a, "a1"), request(a, "a2")];
  await settle();
  await first.release();
  await (await one).release();
  const second = await two;
  expect(second.signal.aborted).toBe(false);
  expect(await b.revoke("k", second.token)).toBe(true);
  await settle();
  expect(second.signal.aborted).toBe(true);
  expect(await second.release()).toBe(false);
});

test("release() waits for the store only if no request in strict order waits here", async () => {
  let open: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const { a, b, request } = createFixture((driver) => ({
    ...driver,
    release: async (releases) => {
      const results = await driver.release(releases);
      await gate;
      return results;
    },
  }));
  const held = await request(a, "a1");
  const other = request(b, "b1");
  await settle();
  const waiting = request(a, "a2");
  await settle();
  expect(await held.release()).toBe(true);
  let isReleased = false;
  const released = (await other).release().then(() => {
    isReleased = true;
  });
  const last = await waiting;
  await settle();
  expect(isReleased).toBe(false);
  open();
  await released;
  await last.release();
});
