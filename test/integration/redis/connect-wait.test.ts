/** A store that is not up yet, or goes away while a driver opens, is tried until `connectTimeout` is over. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterEach, describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { serve } from "../../../src/server/server.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { killAndCheckLog, startRedisProcess } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const runLater: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of runLater.splice(0).reverse()) await cleanup();
});

const connectUsing =
  (createRedis: (port: number) => RedisClient) =>
  async (port: number, connectTimeoutMs: number): Promise<Locks> =>
    createLocks(redis(() => createRedis(port), { connectTimeout: connectTimeoutMs, warn: () => undefined }));
const redisUrl = (port: number): string => `redis://127.0.0.1:${port}`;
const CONNECTION_KINDS: readonly (readonly [string, (port: number, connectTimeoutMs: number) => Promise<Locks>])[] = [
  [
    "connect(url)",
    (port, connectTimeout) => connect(`${redisUrl(port)}?silenceWarnings=appendonly`, { connectTimeout }),
  ],
  ["ioredis", connectUsing((port) => new Redis(port, "127.0.0.1"))],
  [
    "ioredis that connects when it is used",
    connectUsing((port) => new Redis(port, "127.0.0.1", { lazyConnect: true })),
  ],
  ["node-redis", connectUsing((port) => createClient({ url: redisUrl(port) }))],
  [
    "node-redis that does not try again",
    connectUsing((port) => createClient({ url: redisUrl(port), socket: { reconnectStrategy: false } })),
  ],
  ["node-redis 5", connectUsing((port) => createClient5({ url: redisUrl(port) }) as unknown as RedisClient)],
];

async function expectLockable(openConnection: (typeof CONNECTION_KINDS)[number][1], port: number): Promise<void> {
  const locks = await openConnection(port, 20_000);
  runLater.push(() => locks.close());
  const lock = await locks.tryAcquire("key");
  expect(lock).not.toBeNull();
  await lock?.release();
}

withRedis((server) => {
  test("a connection that ends at the first command is opened again, although ioredis takes it for ready until its event", async () => {
    const client = new Redis(server().port, "127.0.0.1", { enableOfflineQueue: false, lazyConnect: true });
    client.once("ready", () => client.stream.end());
    await expectLockable(async () => createLocks(redis(() => client, { warn: () => undefined })), server().port);
  });

  describe.each(CONNECTION_KINDS)("%s", (_, openConnection) => {
    test("finds a server that starts a second later", { timeout: 30_000 }, async () => {
      const [port, folder] = [await freePort(), mkdtempSync(join(tmpdir(), "holdfast-reaching-"))];
      runLater.push(() => rmSync(folder, { recursive: true, force: true }));
      const pendingLock = expectLockable(openConnection, port);
      await delay(1_000);
      const child = await startRedisProcess(folder, port, []);
      runLater.push(() => killAndCheckLog(child));
      await pendingLock;
    });

    test("connects to a server that cuts its first connections, each at another step of opening", {
      timeout: 30_000,
    }, async () => {
      let cutCount = 0;
      const proxy = createServer((clientSocket) => {
        const serverSocket = dial(server().port, "127.0.0.1");
        const closeBoth = (): void => {
          clientSocket.destroy();
          serverSocket.destroy();
        };
        clientSocket.on("error", closeBoth).on("close", closeBoth);
        serverSocket.on("error", closeBoth).on("close", closeBoth).pipe(clientSocket);
        let scripts = 0;
        clientSocket.on("data", (bytes: Buffer) => {
          if (bytes.includes("EVAL")) scripts++;
          // the first connection at the first script that it asks for, the second at the second
          if (cutCount < 3 && scripts > cutCount) {
            cutCount++;
            closeBoth();
          } else serverSocket.write(bytes);
        });
      });
      await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
      runLater.push(() => proxy.close());
      await expectLockable(openConnection, (proxy.address() as { port: number }).port);
      expect(cutCount).toBe(3);
    });
  });
});

test("fails without a server when its time is over, with the cause", async () => {
  const port = await freePort();
  const startedAt = performance.now();
  const error: unknown = await connect(redisUrl(port), { connectTimeout: "700ms" }).catch(
    (failure: unknown) => failure,
  );
  expect(performance.now() - startedAt).toBeGreaterThan(690);
  expect(error).toMatchObject({
    code: "LOCK_STORE_FAILED",
    message: expect.stringMatching(/: not reached within 700 ms: connect ECONNREFUSED/),
  });
});

test("fails at once at the port of a Holdfast server, which is not reported as a refusal", async () => {
  const port = await freePort();
  const otherServer = await serve({ listen: `holdfast://127.0.0.1:${port}`, state: "none" });
  runLater.push(() => otherServer.close());
  for (const [, openConnection] of CONNECTION_KINDS) {
    const startedAt = performance.now();
    const failure = openConnection(port, 10_000).then(async (locks) => {
      runLater.push(() => locks.close());
      await locks.tryAcquire("key");
    });
    await expect(failure).rejects.toMatchObject({
      code: "LOCK_STORE_FAILED",
      message: expect.stringMatching(
        /this is not a Redis server: .*; the URL of a Holdfast server begins with holdfast:/,
      ),
    });
    expect(performance.now() - startedAt).toBeLessThan(9_000);
  }
});
