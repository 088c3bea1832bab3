// Three servers that form one store, under load: held locks stay held while any two servers can communicate, and no two
// holders overlap.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { ServerAddress } from "../../../src/drivers/zookeeper/client/server-list.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { stopProcess } from "../../../src/torture/processes/process-tree.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { testDriver } from "../../client/suite.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { leakCheckedTest } from "../../support/leak-checked-test.ts";
import { toReleases } from "../../support/releases.ts";
import type { MajorityLoad } from "../../support/stores/majority-load.ts";
import { expectGrantsGoOn, startLoad } from "../../support/stores/majority-load.ts";
import type { Ensemble, ZooKeeperServer } from "../../support/stores/zookeeper.ts";
import { startEnsemble } from "../../support/stores/zookeeper.ts";
import { makeSessionClaim } from "../../support/stores/zookeeper-fixture.ts";

const TIMEOUT_MS = 60_000;
const SESSION_MS = 6_000;
const isLongRun = process.env.HOLDFAST_LONG === "1";
const rounds = isLongRun ? 5 : 1;
let ensemble: Ensemble;
let proxies: readonly TcpProxy[];
let stores = 0;
const clients: Locks[] = [];

beforeAll(async () => {
  ensemble = await startEnsemble();
  proxies = await Promise.all(ensemble.addresses.map((address) => tcpProxy(address)));
  await ensemble.leader();
}, 120_000);

afterAll(async () => {
  await Promise.all(proxies.map((proxy) => proxy.close()));
  await ensemble[Symbol.asyncDispose]();
});

afterEach(async () => {
  for (const proxy of proxies) {
    proxy.toTarget.resume();
    proxy.toClient.resume();
  }
  await Promise.all(clients.splice(0).map((locks) => locks.close()));
});

/** Clients reach each server through its proxy. */
function proxyAddresses(): ServerAddress[] {
  return proxies.map(({ address }) => address as ServerAddress);
}

function openLocks(sessionMs = SESSION_MS): Locks {
  const driver = zookeeper({ servers: proxyAddresses(), root: "/ensemble", sessionMs, connectTimeout: 30_000 });
  const locks = createLocks(driver, { ttl: "session", order: "strict" });
  clients.push(locks);
  return locks;
}

const loadOn = (key: string): MajorityLoad =>
  startLoad(
    key,
    Array.from({ length: 4 }, () => openLocks()),
  );

async function findFollower(): Promise<ZooKeeperServer> {
  const leader = await ensemble.leader();
  return ensemble.servers.find((server) => server !== leader) as ZooKeeperServer;
}

const FAULTS: readonly (readonly [string, () => Promise<readonly ZooKeeperServer[]>])[] = [
  ["the leader", async () => [await ensemble.leader()]],
  ["a follower", async () => [await findFollower()]],
  ["all of them", async () => ensemble.servers],
];

test.each(isLongRun ? FAULTS : FAULTS.slice(0, 1))(
  "%s killed and started again under load: grants continue, held locks stay held",
  async (description, victims) => {
    const key = `killed-${description.replaceAll(" ", "-")}`;
    // longer than an election on a busy machine
    const held = await openLocks(40_000).acquire(`${key}-held`);
    await expectGrantsGoOn({ load: loadOn(key), held, rounds, victims, leader: () => ensemble.leader() });
  },
  180_000,
);

test("a server that falls silent under load is left for another, and sessions move with their holds", async () => {
  const [first, ...otherProxies] = proxies as [TcpProxy, ...TcpProxy[]];
  for (const proxy of otherProxies) proxy.refuseConnections(true);
  const load = loadOn("silent");
  await load.waitForGrants(20, "the load");
  const held = await Promise.all(
    Array.from({ length: 6 }, async (_, n) => {
      const zk = new ZooKeeper({ servers: proxyAddresses(), sessionMs: 30_000 });
      await zk.open();
      await zk.create(`/moves-${n}`, { mode: "ephemeral" });
      return { zk, id: zk.sessionId };
    }),
  );
  // all of them are connected to the server that falls silent
  for (const proxy of otherProxies) proxy.refuseConnections(false);
  for (const proxy of isLongRun ? proxies : [first]) {
    proxy.toTarget.pause();
    proxy.toClient.pause();
    await load.waitForGrants(20, "grants without the silent one");
    proxy.toTarget.resume();
    proxy.toClient.resume();
    proxy.reset();
    await load.waitForGrants(20, "grants with all three");
  }
  expect(await load.stop()).toEqual({ maxInside: 1, tokensRose: true });
  for (const [n, { zk, id }] of held.entries()) {
    await until(() => zk.isConnected, { within: TIMEOUT_MS, what: "a connection" });
    await zk.sync("/");
    expect((await zk.exists(`/moves-${n}`))?.ephemeralOwner).toBe(id);
    await zk.close();
  }
}, 180_000);

test("a session moves from server to server, with its lock, its watches and its waiters", async () => {
  const [holder, waiter] = [openLocks(30_000), openLocks(30_000)];
  const lock = await holder.acquire("moved");
  const waits = waiter.acquire("moved");
  const areBothListed = async (): Promise<boolean> => (await holder.list("moved").catch(() => [])).length === 2;
  await until(areBothListed, { within: TIMEOUT_MS, what: "the place" });
  for (let round = 0; round < 6; round++) {
    const [away, ...others] = proxies.map((_, n) => proxies[(n + round) % 3] as TcpProxy);
    away?.refuseConnections(true);
    for (const proxy of proxies) proxy.reset();
    for (const proxy of others) proxy.refuseConnections(false);
    await until(areBothListed, { within: TIMEOUT_MS, what: "both places" });
    expect(lock.signal.aborted).toBe(false);
    away?.refuseConnections(false);
  }
  expect(await lock.release()).toBe(true);
  expect(await (await waits).release()).toBe(true);
}, 120_000);

test("a server that has lost its leader renews nothing: it answers reads and pings while others end the session", async () => {
  const [leader, { address }] = [await ensemble.leader(), await findFollower()];
  const driver = zookeeper({ servers: [address], root: "/ensemble", sessionMs: 40_000 });
  await driver.open(NO_EVENTS);
  const claim = makeSessionClaim("leaderless");
  expect(await driver.claim(claim)).toMatchObject({ state: "held" });
  const zk = new ZooKeeper({ servers: [address] });
  await zk.open();
  try {
    stopProcess(leader.pid);
    let outcome = "not settled";
    driver.renew([claim]).then(
      ([answer]) => {
        outcome = answer?.state ?? "undefined";
      },
      (error: unknown) => {
        outcome = String(error);
      },
    );
    let answeredCount = 0;
    for (let reads = 0; reads < 20; reads++) {
      // on a machine that stands still for seconds the server may notice what it has lost
      if ((await zk.exists("/ensemble").catch(() => null)) !== null) answeredCount++;
    }
    expect(answeredCount).toBeGreaterThan(0);
    expect(outcome).not.toBe("held");
  } finally {
    process.kill(leader.pid, "SIGCONT");
  }
  const isHeldAgain = async (): Promise<boolean> => (await driver.renew([claim]).catch(() => []))[0]?.state === "held";
  await until(isHeldAgain, { within: TIMEOUT_MS, what: "the leader's word" });
  expect(await driver.release(toReleases(claim))).toEqual([true]);
  await Promise.all([driver.close(), zk.close()]);
}, 120_000);

test("doctor reports three voting servers", async () => {
  const driver = zookeeper({ servers: ensemble.addresses, root: "/ensemble", sessionMs: SESSION_MS });
  await driver.open(NO_EVENTS);
  expect((await driver.diagnose?.())?.[1]).toMatchObject({
    status: "ok",
    message: "an ensemble of 3 voting servers",
  });
  await driver.close();
});

if (isLongRun) {
  testDriver({ describe, test: leakCheckedTest(test) }, "a ZooKeeper ensemble", {
    traits: { lease: { claim: false, sessionMs: 4_000 }, manyKeys: false, recall: "push" },
    verbs: ["revoke"],
    keys: 2_000,
    random: { seeds: 20 },
    timeScale: 4,
    async open() {
      const root = `/store-${++stores}`;
      return { driver: () => zookeeper({ servers: ensemble.addresses, root, sessionMs: 4_000 }) };
    },
  });
}
