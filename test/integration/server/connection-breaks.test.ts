/** The lock server, or the store behind it, loses a lock while a client is cut off (test/support/stores/connection-breaks.ts). */

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Answer } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, makeClaim, onCleanup, startServer } from "../../support/server-fixture.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";

cleanUpAfterEach();

testConnectionBreaks("the lock server", async (): Promise<BreakableStore> => {
  const server = await startServer({ listen: "holdfast://127.0.0.1:0" });
  const endpoint = { host: "127.0.0.1", port: Number(server.addresses[0]?.split(":").at(-1)) };
  const proxy = await tcpProxy(endpoint);
  return {
    driverBehindProxies: () => lockServer(proxy.address as typeof endpoint),
    directDriver: () => lockServer(endpoint),
    proxies: [proxy],
    // the waiting claims of a client that is cut off are passed over
    async loseClaims() {
      const driver = lockServer(endpoint);
      await driver.open(NO_EVENTS);
      const { items } = await driver.list({ prefix: "" }, { max: 10 });
      for (const { locks, answer } of items) {
        if (answer.state !== "held") continue;
        await driver.revoke?.([{ key: locks[0].key, token: answer.token, now: true }]);
      }
      await driver.close();
    },
    close: () => proxy.close(),
  };
});

// The network forgets the connection, as a load balancer or address translation does; new ones work.
test("locks outlive a connection that went silent, with short leases and longer ones", async () => {
  const server = await startServer({ listen: "holdfast://127.0.0.1:0" });
  const endpoint = { host: "127.0.0.1", port: Number(server.addresses[0]?.split(":").at(-1)) };
  const other = createLocks(lockServer(endpoint));
  const holdThroughSilence = async (seconds: number): Promise<void> => {
    await using proxy = await tcpProxy(endpoint);
    const locks = createLocks(lockServer(proxy.address as typeof endpoint));
    const lock = await locks.acquire(`${seconds}`, { ttl: `${seconds}s` });
    const waiting = other.acquire(`${seconds}`);
    proxy.silence();
    await delay(1_200 * seconds);
    lock.throwIfLost();
    expect(await lock.release()).toBe(true);
    expect((await waiting).token).toBeGreaterThan(lock.token);
    await locks.close();
  };
  await Promise.all([3, 6, 9].map(holdThroughSilence));
  await other.close();
});

test("grants still pass over a suspended claim after the connection of its client was cut", async () => {
  const server = await startServer({ listen: "holdfast://127.0.0.1:0" });
  const endpoint = { host: "127.0.0.1", port: Number(server.addresses[0]?.split(":").at(-1)) };
  await using proxy = await tcpProxy(endpoint);
  const suspending = lockServer(proxy.address as typeof endpoint);
  const other = lockServer(endpoint);
  onCleanup(() => suspending.close());
  onCleanup(() => other.close());
  let reconnections = 0;
  const granted: string[] = [];
  const pushed = (id: string, { state }: Answer): void => void (state === "held" && granted.push(id));
  await suspending.open({ ...NO_EVENTS, pushed, reconnected: () => void reconnections++ });
  await other.open({ ...NO_EVENTS, pushed });
  const [holder, suspended, behind] = [makeClaim("k"), makeClaim("k"), makeClaim("k")];
  await other.claim(holder);
  await suspending.claim(suspended);
  await other.claim(behind);
  await suspending.suspend?.([suspended], true);
  proxy.reset();
  await until(() => reconnections > 0, { within: 10_000, what: "the new connection" });
  // sent after the suspension, so it is answered after it
  await suspending.renew([suspended]);
  await other.release([{ claim: holder, hasUnansweredClaim: false }]);
  await until(() => granted.length > 0, { within: 10_000, what: "a grant" });
  expect(granted).toEqual([behind.id]);
});
