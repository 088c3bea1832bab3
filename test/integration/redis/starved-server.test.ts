/** Many requests in strict order while Redis gets a quarter of the time: they are served, and not by claims that end and are made anew. */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Answer, Claim, ClaimId } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const REQUESTS = process.env.HOLDFAST_LONG === "1" ? 2_000 : 500;
/** Neighbours in the queue are of different clients, so each grant is Redis'. */
const CLIENTS = 20;
const [STOPPED_MS, RUNNING_MS] = [75, 25];

withRedis((server) => {
  test("nearly all requests are served, with at most two claims each", { timeout: 120_000 }, async () => {
    const prefix = randomUUID();
    const ids = new Set<ClaimId>();
    const clients = Array.from({ length: CLIENTS }, () => {
      const driver = redis(() => new Redis(server().port, "127.0.0.1"), { prefix });
      const claim = (made: Claim): Promise<Answer> => {
        ids.add(made.id);
        return driver.claim(made);
      };
      return createLocks(delegate(driver, { claim }), { ttl: "3s", order: "strict" });
    });
    for (const locks of clients) await (await locks.acquire("warm")).release(); // connected
    const holder = await (clients[0] as Locks).acquire("k");
    let isStarved = true;
    const starving = (async () => {
      while (isStarved) {
        server().signal("SIGSTOP");
        await delay(STOPPED_MS);
        server().signal("SIGCONT");
        await delay(RUNNING_MS);
      }
    })();
    const use = async (lock: Lock): Promise<"served"> => {
      await lock.release();
      return "served";
    };
    const requests = Array.from({ length: REQUESTS }, (_, index) =>
      (clients[index % CLIENTS] as Locks)
        .acquire("k", { wait: "60s" })
        .then(use, ({ code }: { readonly code: string }) => code),
    );
    await holder.release();
    const outcomes = await Promise.all(requests);
    isStarved = false;
    await starving;
    const served = outcomes.filter((outcome) => outcome === "served").length;
    expect(served, [...new Set(outcomes)].join()).toBeGreaterThanOrEqual(0.95 * REQUESTS);
    expect(ids.size).toBeLessThanOrEqual(2 * REQUESTS);
    await Promise.all(clients.map((locks) => locks.close()));
  });
});
