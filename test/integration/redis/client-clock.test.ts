/** Clocks: a client's clock has no effect; a step of the server's is noticed, and tokens make up for its harm. */

import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";

const HOUR_MS = 3_600_000;
const clients: Locks[] = [];
const openClient = (port: number, prefix: string, ttl = 60_000): Locks => {
  const driver = redis(() => new Redis(port, "127.0.0.1"), { prefix, warn: () => undefined });
  const locks = createLocks(driver, { ttl, order: "strict" });
  clients.push(locks);
  return locks;
};
afterEach(async () => {
  vi.useRealTimers();
  for (const locks of clients.splice(0)) await locks.close();
});

describe("a client's clock", () => {
  withRedis((server) => {
    test("an hour off, ahead or behind, changes nothing: order, leases and tokens follow the server's clock", async () => {
      const { port } = server();
      const accurateClient = openClient(port, "client");
      let held = await accurateClient.acquire("key");
      let { token } = held;
      const order: string[] = [];
      for (const [name, byMs] of [
        ["ahead", HOUR_MS],
        ["behind", -HOUR_MS],
      ] as const) {
        vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + byMs });
        const shiftedClient = openClient(port, "client");
        const waiting = shiftedClient.acquire("key", { ttl: "4s" }).then(async (lock) => {
          order.push(name);
          expect(lock.token).toBeGreaterThan(token);
          token = lock.token;
          // it is renewed and not lost, nor does it outlive its lease
          const readRemainingMs = async (): Promise<number> => {
            const [view] = await accurateClient.list("key");
            return view?.state === "held" ? (view.remainingMs ?? 0) : 0;
          };
          await until(async () => (await readRemainingMs()) < 3_500, { within: 5_000, what: "a lease that is older" });
          await until(async () => (await readRemainingMs()) > 3_500, { within: 5_000, what: "its renewal" });
          expect(lock.signal.aborted).toBe(false);
          expect(await lock.release()).toBe(true);
        });
        await until(async () => (await shiftedClient.list("key")).length === 2, { within: 5_000, what: "its place" });
        vi.useRealTimers();
        await held.release();
        await waiting;
        expect(Number(token / 1_000n)).toBeLessThan(Date.now() + HOUR_MS / 2);
        held = await accurateClient.acquire("key");
        ({ token } = held);
      }
      expect(order).toEqual(["ahead", "behind"]);
    }, 20_000);
  });
});

const unavailableReason = shiftedClockUnavailableReason();

describe.skipIf(unavailableReason !== null)(
  `the server's clock${unavailableReason === null ? "" : ` (skipped: ${unavailableReason})`}`,
  () => {
    let server: ShiftedClockRedis;
    const step = (byMs: number): void => server.shift(byMs);
    beforeAll(async () => {
      server = await startShiftedClockRedis();
    }, 180_000);
    afterAll(() => server?.stop());
    afterEach(() => step(0));

    const serverMs = async (): Promise<number> => {
      const admin = new Redis(server.port, "127.0.0.1");
      const [seconds] = await admin.time();
      admin.disconnect();
      return Number(seconds) * 1_000;
    };

    test("the shim moves TIME by an hour and back", async () => {
      step(HOUR_MS);
      expect(Math.abs((await serverMs()) - Date.now() - HOUR_MS)).toBeLessThan(5_000);
      step(-HOUR_MS);
      expect(Math.abs((await serverMs()) - Date.now() + HOUR_MS)).toBeLessThan(5_000);
    });

    test("an hour forward ends leases: the step is reported, the holder is notified at once, and tokens rise", async () => {
      const [client, other] = [openClient(server.port, "forward", 2_000), openClient(server.port, "forward", 60_000)];
      const steps: number[] = [];
      client.on("clockStep", ({ byMs }) => steps.push(byMs));
      const lock = await client.acquire("key");
      const next = other.acquire("key");
      await until(async () => (await client.list("key")).length === 2, { within: 5_000, what: "the waiter" });
      step(HOUR_MS);
      // the renewal finds the lease over, long before the client's own clock would have ended it
      await until(() => lock.signal.aborted, { within: 5_000, what: "the holder to be told" });
      const granted = await next;
      expect(granted.token).toBeGreaterThan(lock.token);
      // the store's next answer to this client shows the step
      await client.tryAcquire("another");
      await until(() => steps.length > 0, { within: 5_000, what: "the event" });
      expect(Math.abs((steps[0] as number) - HOUR_MS)).toBeLessThan(5_000);
      await granted.release();
    });

    test("three days back: who saw a token from before gets the next one, and no floor above that is accepted", async () => {
      const driver = redis(() => new Redis(server.port, "127.0.0.1"), { prefix: "days", warn: () => undefined });
      await driver.open(NO_EVENTS);
      try {
        step(3 * 24 * HOUR_MS);
        const before = makeClaim("key");
        const { token } = (await driver.claim(before)) as { token: bigint };
        await driver.release(toReleases(before));
        step(0);
        await expect(driver.claim(makeClaim("key", { floor: token + 2n }))).rejects.toThrow(/more than a day ahead/);
        // on a free key, and behind a holder
        const [holder, waiter] = [makeClaim("key", { floor: token + 1n }), makeClaim("key", { floor: token + 2n })];
        expect(await driver.claim(holder)).toMatchObject({ state: "held", token: token + 1n });
        expect(await driver.claim(waiter)).toMatchObject({ state: "waiting" });
        await expect(driver.claim(makeClaim("key", { floor: token + 9n }))).rejects.toThrow(/more than a day ahead/);
        await driver.release(toReleases(holder));
        const [answer] = await driver.renew([waiter]);
        expect((answer as { token: bigint }).token).toBeGreaterThan(token + 1n);
        await driver.release(toReleases(waiter));
      } finally {
        await driver.close();
      }
    });

    test("an hour back does no harm: order and held locks stay, leases end on time, tokens rise", async () => {
      const [firstClient, other, lateClient] = [0, 1, 2].map(() => openClient(server.port, "back", 4_000)) as [
        Locks,
        Locks,
        Locks,
      ];
      const lock = await firstClient.acquire("key");
      const order: string[] = [];
      const waits = async (client: Locks, name: string): Promise<bigint> => {
        const next = await client.acquire("key");
        order.push(name);
        await next.release();
        return next.token;
      };
      const second = waits(other, "before the step");
      await until(async () => (await firstClient.list("key")).length === 2, { within: 5_000, what: "the waiter" });
      step(-HOUR_MS);
      const third = waits(lateClient, "after the step");
      await until(async () => (await firstClient.list("key")).length === 3, {
        within: 5_000,
        what: "the second waiter",
      });
      // longer than a lease: renewals continue
      await delay(4_300);
      expect(lock.signal.aborted).toBe(false);
      expect(order).toEqual([]);
      expect(await lock.release()).toBe(true);
      const tokens = [await second, await third];
      expect(order).toEqual(["before the step", "after the step"]);
      expect(tokens[0]).toBeGreaterThan(lock.token);
      expect(tokens[1]).toBeGreaterThan(tokens[0] as bigint);
      // a holder that dies after the step keeps the key for its lease, not for an hour
      const deadClient = openClient(server.port, "back", 1_000);
      await deadClient.acquire("dying", { ttl: "1s" }).then((lock) => lock.detach());
      const successor = await firstClient.acquire("dying", { wait: "10s" });
      await successor.release();
    }, 20_000);
  },
);
