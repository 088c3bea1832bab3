// fenceRedis() on a real Redis: scripts that do not run after a later holder's.

import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fenceRedis } from "../../../src/fencing/index.ts";
import { createTestLock } from "../../support/fence-scenarios.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";

const SET = { script: "return redis.call('SET', KEYS[1], ARGV[1])", keys: ["data"] };

let server: RedisServer;
let client: Redis;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port, "127.0.0.1");
});

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

test("after a later holder's script an earlier one does not run", async () => {
  await client.flushall();
  expect(await fenceRedis(client, createTestLock(10), { ...SET, args: ["first"] })).toBe("OK");
  await fenceRedis(client, createTestLock(10), { ...SET, args: ["again"] });
  await fenceRedis(client, createTestLock(20), { ...SET, args: ["later"] });
  await expect(fenceRedis(client, createTestLock(10), { ...SET, args: ["late"] })).rejects.toMatchObject({
    code: "STALE_LOCK",
    keys: ["k"],
  });
  expect(await client.get("data")).toBe("later");
});

test("tokens above 2^53 are compared exactly, and by value", async () => {
  await client.flushall();
  await fenceRedis(client, createTestLock(2n ** 60n + 1n), { ...SET, args: ["a"] });
  await expect(fenceRedis(client, createTestLock(2n ** 60n), { ...SET, args: ["b"] })).rejects.toMatchObject({
    code: "STALE_LOCK",
  });
  await expect(fenceRedis(client, createTestLock(9), { ...SET, args: ["b"] })).rejects.toMatchObject({
    code: "STALE_LOCK",
  });
  await fenceRedis(client, createTestLock(2n ** 60n + 2n), { ...SET, args: ["c"] });
  expect(await client.get("data")).toBe("c");
});

test("readers pass each other, and order themselves with writers", async () => {
  await client.flushall();
  const read = { script: "return redis.call('GET', KEYS[1])", keys: ["data"] };
  await fenceRedis(client, createTestLock(10), { ...SET, args: ["x"] });
  expect(await fenceRedis(client, createTestLock(30, "shared"), read)).toBe("x");
  expect(await fenceRedis(client, createTestLock(20, "shared"), read)).toBe("x");
  await expect(fenceRedis(client, createTestLock(25), { ...SET, args: ["y"] })).rejects.toMatchObject({
    code: "STALE_LOCK",
  });
  await fenceRedis(client, createTestLock(40), { ...SET, args: ["z"] });
  await expect(fenceRedis(client, createTestLock(35, "shared"), read)).rejects.toMatchObject({ code: "STALE_LOCK" });
});

test("node-redis works too; wrong arguments are refused before anything is sent", async () => {
  await client.flushall();
  const other = createClient({ url: `redis://127.0.0.1:${server.port}` });
  await other.connect();
  expect(
    await fenceRedis(other, createTestLock(10), {
      script: "return {KEYS[1], #KEYS, ARGV[1], #ARGV}",
      keys: ["a", "b"],
      args: ["c"],
    }),
  ).toEqual(["a", 2, "c", 1]);
  await expect(fenceRedis(other, createTestLock(5), SET)).rejects.toMatchObject({ code: "STALE_LOCK" });
  other.destroy();
  await expect(fenceRedis({}, createTestLock(20), SET)).rejects.toThrow(/client must be/);
  await expect(fenceRedis(client, createTestLock(20, "exclusive", ["a", "b"]), SET)).rejects.toThrow(/one key/);
  await expect(fenceRedis(client, createTestLock(20), { keys: [] } as never)).rejects.toThrow(/script/);
  expect(await client.keys("*")).toEqual(["holdfast:fence:k"]);
});
