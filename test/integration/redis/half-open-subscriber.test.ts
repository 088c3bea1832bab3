// An inbox that receives nothing although its connection was never seen to end: a firewall, or a load balancer, has dropped
// it for being idle.

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";

/** Clients whose first inbox goes by way of this port, under this name. */
const CLIENTS: Readonly<Record<string, (port: number, by: number, name: string) => RedisClient>> = {
  ioredis(port, proxyPort, name) {
    let times = 0;
    const duplicate = (options: object): Redis =>
      times++ === 0
        ? new Redis({ port: proxyPort, host: "127.0.0.1", ...options, connectionName: name })
        : new Redis({ port, host: "127.0.0.1", ...options });
    return Object.assign(new Redis(port, "127.0.0.1"), { duplicate });
  },
  "node-redis"(port, proxyPort, name) {
    let times = 0;
    const duplicate = (options: { socket?: object }): unknown =>
      times++ === 0
        ? createClient({ name, socket: { ...options.socket, host: "127.0.0.1", port: proxyPort } })
        : createClient({ socket: { ...options.socket, host: "127.0.0.1", port } });
    const client = createClient({ socket: { host: "127.0.0.1", port } });
    return Object.assign(client, { duplicate }) as unknown as RedisClient;
  },
};

const CONNECTION_ENDS: Readonly<Record<string, (admin: Redis, name: string) => Promise<unknown>>> = {
  "and the server does not know": async () => undefined,
  async "and the server has ended it"(admin, name) {
    const connectionList = String(await admin.call("CLIENT", "LIST", "TYPE", "pubsub"));
    const [, id = ""] = new RegExp(`^id=(\\d+) .*\\bname=${name} `, "m").exec(connectionList) ?? [];
    expect(await admin.call("CLIENT", "KILL", "ID", id)).toBe(1);
  },
};

withRedis((server) => {
  const cases = Object.keys(CLIENTS).flatMap((library) =>
    Object.keys(CONNECTION_ENDS).map((end) => [library, end] as const),
  );
  describe("a half-open inbox connection", () => {
    test.concurrent.each(cases)(
      "by %s, %s, is noticed while a claim waits, and replaced",
      {
        timeout: 40_000,
      },
      async (library, end) => {
        const fixture: RedisFixture = createRedisFixture(server().port);
        await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
        const { port: proxyPort } = proxy.address as { port: number };
        const name = randomUUID();
        const createRedis = (): RedisClient =>
          (CLIENTS[library] as (typeof CLIENTS)[string])(server().port, proxyPort, name);
        try {
          const [lockClient, other] = [
            await fixture.open(redis(createRedis, { prefix: fixture.prefix })),
            await fixture.open(),
          ];
          const [first, second] = [makeClaim("key"), makeClaim("key")];
          await other.claimHeld(first);
          await lockClient.claim(second);
          proxy.toTarget.pause();
          proxy.toClient.pause();
          await (CONNECTION_ENDS[end] as (typeof CONNECTION_ENDS)[string])(fixture.admin, name);
          // only the regular renewals of the waiter
          const isTold = async (): Promise<boolean> => {
            expect((await lockClient.renewOnce(second)).state).toBe("waiting");
            return lockClient.pushes.some(({ id }) => id === null);
          };
          await until(isTold, { within: 20_000, what: "word that something may have been missed" });
          await other.driver.release(toReleases(first));
          const push = await until(() => lockClient.pushes.find(({ id }) => id === second.id), {
            within: 5_000,
            what: "the push",
          });
          expect(push.answer).toMatchObject({ state: "held" });
        } finally {
          await fixture.close();
        }
      },
    );
  });
});
