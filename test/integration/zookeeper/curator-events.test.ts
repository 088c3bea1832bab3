// Curator's SUSPENDED, RECONNECTED and LOST, as the events of a Holdfast lock.

import { expect, test } from "vitest";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";

const TIMEOUT_MS = 20_000;

test("a lost connection puts held locks in jeopardy, a new one in time restores them; a session's end loses them", async () => {
  await using server = await startZooKeeper();
  await using proxy = await tcpProxy(server.address);
  const { port } = proxy.address as { port: number };
  const driver = zookeeper({ servers: [{ host: "127.0.0.1", port }], sessionMs: 6_000 });
  await using locks = createLocks(driver, { ttl: "session" });
  const events: string[] = [];
  locks.on("storeDown", () => events.push("storeDown"));
  locks.on("storeUp", () => events.push("storeUp"));
  locks.on("jeopardy", ({ keys }) => events.push(`jeopardy ${keys}`));
  locks.on("restored", ({ keys }) => events.push(`restored ${keys}`));
  locks.on("lost", ({ keys, reason }) => events.push(`lost ${keys} ${reason}`));
  const waitForEvent = (text: string): Promise<unknown> =>
    until(() => events.includes(text), { within: TIMEOUT_MS, what: `"${text}" after ${events}` });
  const lock = await locks.acquire("/held");

  proxy.refuseConnections(true);
  proxy.reset();
  await waitForEvent("jeopardy /held");
  expect(lock.remainingMs, "it still stands").toBeGreaterThan(0);
  proxy.refuseConnections(false);
  await waitForEvent("restored /held");
  expect(lock.signal.aborted).toBe(false);

  proxy.refuseConnections(true);
  proxy.reset();
  await waitForEvent("lost /held expired");
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "expired" });
  expect(await lock.release()).toBe(false);
  await waitForEvent("storeDown");
  proxy.refuseConnections(false);
  await (await locks.acquire("/held")).release();
  await waitForEvent("storeUp");
}, 60_000);
