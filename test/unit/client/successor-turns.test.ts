import { describe, expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Lock, Locks, LocksOptions } from "../../../src/index.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";

describe("the client", () => {
  const clock = new FakeClock();

  interface Fixture {
    readonly store: MemoryStore;
    readonly locks: Locks;
    /** Each is the text of an event. */
    readonly events: string[];
    /** The locks in the order of their requests, as far as they are granted. */
    readonly granted: (Lock | undefined)[];
    /** Requests the lock, and lets the request reach the store. */
    request(options?: Parameters<Locks["acquire"]>[1]): Promise<void>;
    /** The ids of the claims that hold the key, and of those that wait for it, as the lock table has them. */
    inStore(): string;
  }

  /** A client in strict order, whose requests wait behind another client's lock until that is released. */
  async function openFixture(options: LocksOptions = {}): Promise<Fixture & { start(): Promise<void> }> {
    const store = memoryStore(clock);
    const table = tableOf(store);
    const locks = createLocks(memory({ store }), { order: "strict", ttl: "10s", clock, ...options });
    const other = createLocks(memory({ store }), { ttl: "10s", clock });
    const first = await other.acquire("k");
    const events: string[] = [];
    const granted: (Lock | undefined)[] = [];
    for (const name of ["acquired", "handedOff", "released", "lost"] as const)
      locks.on(name, (event) => events.push(`${name} ${event.token - first.token}`));
    return {
      ...{ store, locks, events, granted },
      async request(requestOptions) {
        const index = granted.push(undefined) - 1;
        void locks.acquire("k", requestOptions).then(
          (lock) => {
            granted[index] = lock;
          },
          () => undefined,
        );
        await flushEventLoop(2);
      },
      inStore: () => [...table.records.values()].map(({ isHeld }) => (isHeld ? "holds" : "waits")).join(" "),
      async start() {
        await first.release();
        await flushEventLoop(2);
      },
    };
  }

  async function release(lock: Lock | undefined): Promise<boolean | undefined> {
    const wasHeld = lock?.release();
    await flushEventLoop(2);
    return wasHeld;
  }

  test("hands the lock on under the first claim, and withdraws each claim that it serves", async () => {
    const { request, start, granted, inStore, events, locks } = await openFixture();
    for (let index = 0; index < 3; index++) await request();
    await start();
    expect(inStore()).toBe("holds waits waits");
    expect(await release(granted[0])).toBe(true);
    expect(inStore()).toBe("holds waits");
    expect(granted[1]?.token).toBe((granted[0] as Lock).token + 1n);
    expect(await release(granted[1])).toBe(true);
    expect(inStore()).toBe("holds");
    expect(await release(granted[2])).toBe(true);
    expect(inStore()).toBe("");
    expect(events).toEqual([
      "acquired 1",
      "released 1",
      "acquired 2",
      "handedOff 2",
      "released 2",
      "acquired 3",
      "handedOff 3",
      "released 3",
    ]);
    await locks.close();
  });

  test("skips a request that was aborted, with its token", async () => {
    const { request, start, granted, locks } = await openFixture();
    const abort = new AbortController();
    await request();
    await request({ signal: abort.signal });
    await request();
    await start();
    abort.abort();
    await release(granted[0]);
    expect(granted[2]?.token).toBe((granted[0] as Lock).token + 2n);
    await locks.close();
  });

  test("releases a lock with less than half of its lease, so that the store grants it to the next one with a lease of its own", async () => {
    const { request, start, granted, locks, events } = await openFixture({ renew: false });
    await request();
    await clock.advance(5_000);
    await request();
    await start();
    await release(granted[0]);
    expect((granted[1] as Lock).remainingMs).toBeGreaterThan(5_000);
    expect(events).not.toContain("handedOff 2");
    await locks.close();
  });

  test("reports a loss to the holder of that moment", async () => {
    const { request, start, granted, locks, events } = await openFixture();
    for (let index = 0; index < 2; index++) await request();
    await start();
    await release(granted[0]);
    await locks.revoke("k", (granted[1] as Lock).token, { now: true });
    await flushEventLoop(2);
    expect(granted[1]?.signal.aborted).toBe(true);
    expect(events.at(-1)).toBe("lost 2");
    await locks.close();
  });

  test("waits for the store's answer again when no request of the key waits any more", async () => {
    const { request, start, granted, locks, store } = await openFixture();
    const abort = new AbortController();
    await request();
    await request({ signal: abort.signal });
    await start();
    abort.abort();
    await flushEventLoop(2);
    tableOf(store).revoke("k", Number((granted[0] as Lock).token), true, {
      now: clock.now(),
      micros: clock.wall() * 1_000,
    });
    expect(await release(granted[0])).toBe(false);
    await locks.close();
  });

  test("close() in the middle leaves nothing in the store", async () => {
    const { request, start, granted, locks, inStore, events } = await openFixture();
    for (let index = 0; index < 4; index++) await request();
    await start();
    await release(granted[0]);
    await locks.close();
    expect(inStore()).toBe("");
    expect(events.slice(-2)).toEqual(["handedOff 2", "released 2"]);
    expect(granted.slice(2)).toEqual([undefined, undefined]);
  });

  test("a listener of the release that closes the client, or releases all, ends the turn", async () => {
    for (const name of ["close", "releaseAll"] as const) {
      const { request, start, granted, locks, inStore } = await openFixture();
      for (let index = 0; index < 3; index++) await request();
      await start();
      const listener = locks.on("released", () => {
        listener[Symbol.dispose]();
        void locks[name]();
      });
      await release(granted[0]);
      expect([name, inStore()]).toEqual([name, name === "close" ? "" : "holds waits"]);
      await locks.close();
      expect(inStore()).toBe("");
    }
  });

  test("detach in the middle: the lock goes on elsewhere, and the next request gets it from the store", async () => {
    const { request, start, granted, locks, inStore, store } = await openFixture();
    for (let index = 0; index < 3; index++) await request();
    await start();
    await release(granted[0]);
    const lock = granted[1] as Lock;
    const elsewhere = createLocks(memory({ store }), { ttl: "10s", clock });
    const attached = await elsewhere.attach(await lock.detach());
    expect([attached.token, inStore()]).toEqual([lock.token, "holds waits"]);
    await attached.release();
    await flushEventLoop(2);
    expect((granted[2] as Lock).token).toBeGreaterThan(lock.token + 1n);
    await Promise.all([locks.close(), elsewhere.close()]);
    expect(inStore()).toBe("");
  });

  test("the limit of each holder is its own", async () => {
    const { request, start, granted, locks, events } = await openFixture();
    for (let index = 0; index < 2; index++) await request({ maxHold: "3s" });
    await request();
    await start();
    await clock.advance(2_000);
    await release(granted[0]);
    await clock.advance(2_000);
    expect([granted[1]?.signal.aborted, events.at(-1)]).toEqual([false, "handedOff 2"]);
    await clock.advance(1_000);
    expect([granted[1]?.signal.aborted, events.at(-1)]).toEqual([true, "lost 2"]);
    expect(granted[2]).toBeUndefined();
    await release(granted[1]);
    expect(granted[2]?.remainingMs).toBeGreaterThan(0);
    await clock.advance(20_000);
    expect(granted[2]?.signal.aborted).toBe(false);
    await locks.close();
  });
});
