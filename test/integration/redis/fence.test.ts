// fenceRedis() on a real Redis: scripts that do not run after a later holder's.

import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
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
    code: "LOCK_STALE",
    keys: ["k"],
  });
  expect(await client.get("data")).toBe("later");
});

test("tokens above 2^53 are compared exactly, and by value", async () => {
  await client.flushall();
  await fenceRedis(client, createTestLock(2n ** 60n + 1n), { ...SET, args: ["a"] });
  await expect(fenceRedis(client, createTestLock(2n ** 60n), { ...SET, args: ["b"] })).rejects.toMatchObject({
    code: "LOCK_STALE",
  });
  await expect(fenceRedis(client, createTestLock(9), { ...SET, args: ["b"] })).rejects.toMatchObject({
    code: "LOCK_STALE",
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
    code: "LOCK_STALE",
  });
  await fenceRedis(client, createTestLock(40), { ...SET, args: ["z"] });
  await expect(fenceRedis(client, createTestLock(35, "shared"), read)).rejects.toMatchObject({ code: "LOCK_STALE" });
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
  await expect(fenceRedis(other, createTestLock(5), SET)).rejects.toMatchObject({ code: "LOCK_STALE" });
  other.destroy();
  await expect(fenceRedis({}, createTestLock(20), SET)).rejects.toThrow(/client must be/);
  await expect(fenceRedis(client, createTestLock(20, "exclusive", ["a", "b"]), SET)).rejects.toThrow(/one key/);
  await expect(fenceRedis(client, createTestLock(20), { keys: [] } as never)).rejects.toThrow(/script/);
  expect(await client.keys("*")).toEqual(["holdfast:fence:k"]);
});

test("a script returns what it would return by itself", async () => {
  const results: readonly (readonly [string, unknown])[] = [
    ["return 'QUEUED'", "QUEUED"],
    ["return redis.status_reply('QUEUED')", "QUEUED"],
    ["return {1, {'a', 2}}", [1, ["a", 2]]],
    ["return {}", []],
    ["return true", 1],
    ["return false", null],
    ["redis.call('SET', 'x', 1)", null],
    ["return redis.call('GET', 'missing')", null],
  ];
  for (const [script, result] of results) {
    expect(await fenceRedis(client, createTestLock(10), { script }), script).toEqual(result);
  }
  for (const script of ["return redis.error_reply('ERR mine')", "return redis.pcall('INCR')"]) {
    await expect(fenceRedis(client, createTestLock(10), { script }), script).rejects.toThrow(/^ERR/);
  }
});

describe("a transaction", () => {
  test("or pipeline is refused before anything is queued", async () => {
    const other = createClient({ url: server.url });
    const [multi, other5] = [other.multi(), createClient5({ url: server.url })];
    for (const queue of [client.multi(), client.pipeline(), multi, other5.multi()]) {
      await expect(fenceRedis(queue, createTestLock(10), SET)).rejects.toThrow(
        new TypeError(
          "client must be a Redis client, not a transaction or pipeline, which would only queue the script",
        ),
      );
    }
    await other.connect();
    expect(await multi.exec()).toEqual([]);
    other.destroy();
  });

  const insideMulti = { code: "LOCK_STORE_REFUSED", message: expect.stringMatching(/inside a MULTI.*DISCARD/) };

  test("that a client of ioredis is in makes an error of the reply", async () => {
    await client.flushall();
    await client.multi({ pipeline: false });
    await expect(fenceRedis(client, createTestLock(10), SET)).rejects.toMatchObject(insideMulti);
    await client.discard();
    expect(await client.keys("*")).toEqual([]);
  });

  test("that a client of node-redis is in makes an error of the reply", async () => {
    await client.flushall();
    const other = createClient({ url: server.url });
    await other.connect();
    await other.sendCommand(["MULTI"]);
    await expect(fenceRedis(other, createTestLock(10), SET)).rejects.toMatchObject(insideMulti);
    await other.sendCommand(["DISCARD"]);
    expect(await client.keys("*")).toEqual([]);
    other.destroy();
  });
});

test("a server without EVAL is named, and the script is not quoted", async () => {
  const hiding = await startRedis(["--rename-command", "EVAL", ""]);
  const other = new Redis(hiding.port, "127.0.0.1");
  try {
    const failure: unknown = await fenceRedis(other, createTestLock(10), SET).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "LOCK_STORE_REFUSED" });
    expect((failure as Error).message).toMatch(/^fenceRedis: the server does not have EVAL \(unknown command\)/);
    expect((failure as Error).message).not.toMatch(/local|ARGV/);
  } finally {
    other.disconnect();
    await hiding.stop();
  }
});
