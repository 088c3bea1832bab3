/** The cost of a Redis client to its process: it keeps neither the process alive nor memory for finished claims. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { connect } from "../../../src/index.ts";
import { builtFile } from "../../support/built-file.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const INDEX = pathToFileURL(builtFile("dist/index.js")).href;
const REDIS = pathToFileURL(builtFile("dist/drivers/redis/driver.js")).href;
const ATTEMPTS = process.env.HOLDFAST_LONG === "1" ? 1_000_000 : 20_000;
const CONCURRENT_ATTEMPTS = 500;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;
const heapUsed = (): number => {
  collectGarbage();
  return process.memoryUsage().heapUsed;
};

withRedis((server) => {
  test.each([
    ["by url", (url: string) => `await connect(${JSON.stringify(url)})`],
    ["by node-redis", (url: string) => `createLocks(redis(() => createClient({ url: ${JSON.stringify(url)} })))`],
    [
      "by node-redis that was connected by its maker",
      (url: string) => `createLocks(redis(() => createClient({ url: ${JSON.stringify(url)} }).connect()))`,
    ],
    [
      "by ioredis that was connected by its maker",
      (url: string) => `createLocks(redis(async () => {
        const client = new Redis(${JSON.stringify(url)});
        await client.ping();
        return client;
      }))`,
    ],
  ])("an idle client %s keeps no process alive, although it was not closed", { timeout: 20_000 }, async (_, made) => {
    const text = `
      import { Redis } from "ioredis";
      import { createClient } from "redis";
      import { connect, createLocks } from ${JSON.stringify(INDEX)};
      import { redis } from ${JSON.stringify(REDIS)};
      const locks = ${made(server().url)};
      const lock = await locks.acquire("k");
      const next = locks.acquire("k");
      await lock.release();
      await (await next).release();
      console.log("done");
    `;
    const child = spawn(process.execPath, ["--no-warnings", "--input-type=module", "-e", text], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const timeout = setTimeout(() => child.kill("SIGKILL"), 15_000);
    let out = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      out += chunk;
    });
    const ended = await once(child, "close");
    clearTimeout(timeout);
    assert.deepEqual([...ended, out], [0, null, "done\n"]);
  });

  test("any number of failed attempts leaves nothing in memory", {
    timeout: 600_000,
  }, async () => {
    await using holder = await connect(`${server().url}?prefix=attempts`);
    await using locks = await connect(`${server().url}?prefix=attempts`);
    const keys = Array.from({ length: CONCURRENT_ATTEMPTS }, (_, index) => `key ${index}`);
    const held = await Promise.all(keys.map((key) => holder.acquire(key)));
    const attempts = async (count: number): Promise<void> => {
      for (let sentCount = 0; sentCount < count; sentCount += CONCURRENT_ATTEMPTS) {
        const results = await Promise.all(keys.map((key) => locks.tryAcquire(key)));
        expect(results.every((lock) => lock === null)).toBe(true);
      }
    };
    await attempts(ATTEMPTS / 2);
    const before = heapUsed();
    await attempts(ATTEMPTS);
    // 100 bytes kept for each of 20,000 would be 2 MB
    expect(heapUsed() - before).toBeLessThan(1_000_000);
    expect(held.some(({ signal }) => signal.aborted)).toBe(false);
  });
});
