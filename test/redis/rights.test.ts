/** The lines of the guide that give a user its rights, copied as they stand. */

import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import { connect, createLocks } from "../../src/index.ts";
import { CLUSTER_RIGHTS, RIGHTS } from "../support/redis-rights.ts";
import { withRedis } from "../support/redis-store.ts";
import { startRedis } from "../support/services/redis.ts";
import { replicated } from "../support/services/redis-pair.ts";
import { until } from "../support/wait-for.ts";

const LINES = [...readFileSync("docs/guide/redis.md", "utf8").matchAll(/^ACL SETUSER .*$/gm)].map(([line]) => line);
const [ALONE = "", OPTIONS = "", CLUSTER = ""] = LINES;

test("they are the rights that all tests with users of few rights run with", () => {
  expect(LINES).toHaveLength(3);
  const rights = (line: string): string[] => line.split(" ").filter((word) => word.startsWith("+"));
  expect(rights(ALONE)).toEqual(RIGHTS);
  expect(rights(CLUSTER)).toEqual(CLUSTER_RIGHTS);
});

withRedis((server) => {
  test("a user made by the first line takes locks, waits, hands over and holds several keys; the second adds the options", {
    timeout: 60_000,
  }, async () => {
    const { port } = server();
    const admin = new Redis(port, "127.0.0.1");
    const apply = async (line: string): Promise<void> => {
      const [command = "", ...words] = line.split(" ");
      expect(await admin.call(command, ...words)).toBe("OK");
    };
    await apply(ALONE);
    const url = `redis://locks:change-me@127.0.0.1:${port}`;
    const one = await connect(`${url}?silenceWarnings=appendonly`);
    const two = await connect(`${url}?silenceWarnings=appendonly`);
    const held = await one.acquire("key");
    const next = two.acquire("key");
    await until(async () => (await one.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    await held.release();
    await (await next).release();
    const both = await one.all("key", one.semaphore("seats", 2)).acquire();
    expect(await both.release()).toBe(true);
    expect(await one.tryAcquire("key").then((lock) => lock?.release())).toBe(true);
    const guarded = await connect(`${url}?silenceWarnings=appendonly,guardDataLoss&guardDataLoss=1s`, { ttl: "1s" });
    await guarded.using("guarded", () => undefined);
    await expect(connect(`${url}/3`)).rejects.toThrow(/grant \+select/);

    await apply(OPTIONS);
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(port)]);
    await replicated(admin, 1);
    const third = await connect(`${url}/3?silenceWarnings=appendonly&replicas=1`);
    await third.using("key", () => undefined);
    const driver = redis(() => new Redis(`${url}/3`), { warn: () => undefined });
    const other = createLocks(driver);
    await other.using("key", () => undefined);
    expect((await driver.examine?.())?.find(({ what }) => what === "keys")).toMatchObject({ level: "good" });
    for (const locks of [one, two, guarded, third, other]) await locks.close();
    admin.disconnect();
    await replica.stop();
  });
});
