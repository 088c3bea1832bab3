/** The lines of the guide that grant a user its rights, copied unchanged. */

import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { CLUSTER_PERMISSIONS, LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";
import { waitForReplicas } from "../../support/stores/redis-replication.ts";

const ACL_LINES = [...readFileSync("docs/guide/redis.md", "utf8").matchAll(/^ACL SETUSER .*$/gm)].map(([line]) => line);
const [SINGLE_SERVER_ACL = "", OPTIONS_ACL = "", CLUSTER_ACL = ""] = ACL_LINES;

test("the documented rights are those of all tests with restricted users", () => {
  expect(ACL_LINES).toHaveLength(3);
  const rights = (line: string): string[] => line.split(" ").filter((rule) => rule.startsWith("+"));
  expect(rights(SINGLE_SERVER_ACL)).toEqual(LEAST_PERMISSIONS);
  expect(rights(CLUSTER_ACL)).toEqual(CLUSTER_PERMISSIONS);
});

withRedis((server) => {
  test("a user made by the first line takes locks, waits, hands off and holds several keys; the second adds the options", {
    timeout: 60_000,
  }, async () => {
    const { port } = server();
    const admin = new Redis(port, "127.0.0.1");
    const apply = async (line: string): Promise<void> => {
      const [command = "", ...words] = line.split(" ");
      expect(await admin.call(command, ...words)).toBe("OK");
    };
    await apply(SINGLE_SERVER_ACL);
    const url = `redis://locks:change-me@127.0.0.1:${port}`;
    const client = await connect(`${url}?silenceWarnings=appendonly`);
    const two = await connect(`${url}?silenceWarnings=appendonly`);
    const held = await client.acquire("key");
    const next = two.acquire("key");
    await until(async () => (await client.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    await held.release();
    await (await next).release();
    const lock = await client.all("key", client.semaphore("seats", 2)).acquire();
    expect(await lock.release()).toBe(true);
    expect(await client.tryAcquire("key").then((lock) => lock?.release())).toBe(true);
    const guarded = await connect(`${url}?silenceWarnings=appendonly,guardDataLoss&guardDataLoss=1s`, { ttl: "1s" });
    await guarded.using("guarded", () => undefined);
    await expect(connect(`${url}/3`)).rejects.toThrow(/grant \+select/);

    await apply(OPTIONS_ACL);
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(port)]);
    await waitForReplicas(admin, 1);
    const third = await connect(`${url}/3?silenceWarnings=appendonly&replicas=1`);
    await third.using("key", () => undefined);
    const driver = redis(() => new Redis(`${url}/3`), { warn: () => undefined });
    const otherLocks = createLocks(driver);
    await otherLocks.using("key", () => undefined);
    expect((await driver.diagnose?.())?.find(({ name }) => name === "keys")).toMatchObject({ status: "ok" });
    for (const locks of [client, two, guarded, third, otherLocks]) await locks.close();
    admin.disconnect();
    await replica.stop();
  });
});
