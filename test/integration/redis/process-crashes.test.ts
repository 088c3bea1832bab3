/** Processes that die or stop on a real Redis: the guarantees of Holdfast's own server hold here, too. */

import { Redis } from "ioredis";
import { expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { openFencedRegister } from "../../support/processes/fenced-register.ts";
import { test } from "../../support/processes/process-harness.ts";
import { expectStaleHolderRejected } from "../../support/processes/stale-holder.ts";
import { msBetween, startWorker } from "../../support/processes/worker.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const LEASE_MS = 2_000;
/** "At once", on a machine that is busy with other things. */
const IMMEDIATE_MS = 3_000;

withRedis((server) => {
  const urlOf = (prefix: string): string => `${server().url}?prefix=${prefix}`;

  test.concurrent("after a holder is killed the next grant comes when its lease has ended, not before", async ({
    harness,
  }) => {
    const url = urlOf("killed");
    const [holder, next] = [await startWorker(harness, url), await startWorker(harness, url)];
    holder.acquire("it", "k", { ttl: "2s" });
    const held = await holder.waitForReport("it", "held");
    next.acquire("next", "k");
    await next.waitForReport("next", "asked");
    const killTime = { at: String(process.hrtime.bigint()) };
    holder.kill();
    const requestReport = await holder.waitForReport("it", "asked");
    const granted = await next.waitForReport("next", "held");
    expect(msBetween(requestReport, granted)).toBeGreaterThanOrEqual(LEASE_MS);
    expect(msBetween(killTime, granted)).toBeLessThan(LEASE_MS + IMMEDIATE_MS);
    expect(BigInt(granted.token!)).toBeGreaterThan(BigInt(held.token!));
    console.log(`figure: holder killed on Redis (lease 2 s), next after ${msBetween(killTime, granted).toFixed(0)} ms`);
  });

  test.concurrent("a holder stopped past its lease is notified before it can write, and its token is refused", async ({
    harness,
  }) => {
    await expectStaleHolderRejected(harness, urlOf("stopped"));
  });

  test.concurrent("a killed waiter leaves no entry: the next waiter is granted at once", async ({ harness }) => {
    const url = urlOf("waiter");
    const admin = new Redis(server().port, "127.0.0.1");
    harness.onTeardown(() => admin.disconnect());
    const workers = [
      await startWorker(harness, url),
      await startWorker(harness, url),
      await startWorker(harness, url),
    ] as const;
    const [holder, waiter, laterWaiter] = workers;
    const names = ["holder", "waiter", "behind"] as const;
    for (const [index, name] of names.entries()) {
      workers[index]?.acquire(name, "k");
      await workers[index]?.waitForReport(name, index === 0 ? "held" : "asked");
      const waiting = async (): Promise<number> => {
        const [line] = await admin.keys("waiter:3:*:w:k");
        return line === undefined ? 0 : admin.zcard(line);
      };
      await until(async () => (await waiting()) === index, { within: 5_000, what: "the waiter in the queue" });
    }
    waiter.kill();
    await waiter.ended;
    // Redis notices it when the connection of its inbox is gone
    await until(async () => (await admin.pubsub("CHANNELS", "waiter:3:*")).length === 2, {
      within: 5_000,
      what: "the end of its inbox",
    });
    holder.send({ do: "release", of: "holder" });
    const report = await holder.waitForReport("holder", "released");
    expect(msBetween(report, await laterWaiter.waitForReport("behind", "held"))).toBeLessThan(IMMEDIATE_MS);
  });

  test.concurrent("scripts flushed repeatedly: three processes continue, no two holders overlap, tokens rise", async ({
    harness,
  }) => {
    const url = urlOf("scripts");
    const register = await openFencedRegister(harness);
    const admin = new Redis(server().port, "127.0.0.1");
    harness.onTeardown(() => admin.disconnect());
    const workers = [0, 1, 2].map(() => startWorker(harness, url, register.path));
    for (const worker of await Promise.all(workers)) {
      worker.send({ do: "load", of: "it", keys: ["a", "b"], ttl: "10s", holdMs: 2 });
    }
    for (let flush = 1; flush <= 20; flush++) {
      const size = register.log.length;
      await admin.script("FLUSH");
      await until(() => register.log.length >= size + 12, { within: 10_000, what: "work after the flush" });
    }
    for (const worker of await Promise.all(workers)) {
      worker.send({ do: "finish", of: "it" });
      expect((await worker.waitForReport("it", "done")).turns).toBeGreaterThan(10);
      expect(worker.reports().filter(({ event }) => event === "lost" || event === "failed")).toEqual([]);
    }
    expect(register.faults()).toEqual([]);
  });
});
