// Three members that form one store, under load: held locks stay held while any two of them can communicate, and no two
// holders overlap.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { EtcdAddress, EtcdCluster, EtcdServer } from "../../support/stores/etcd.ts";
import { startEtcdCluster } from "../../support/stores/etcd.ts";
import { readEtcdQueue } from "../../support/stores/etcd-inspector.ts";
import type { MajorityLoad } from "../../support/stores/majority-load.ts";
import { expectGrantsGoOn, startLoad } from "../../support/stores/majority-load.ts";

const TIMEOUT_MS = 60_000;
const isLongRun = process.env.HOLDFAST_LONG === "1";
const rounds = isLongRun ? 5 : 1;
const PREFIX = "holdfast/";

let cluster: EtcdCluster;
let proxies: readonly TcpProxy[];
const clients: Locks[] = [];

beforeAll(async () => {
  cluster = await startEtcdCluster();
  proxies = await Promise.all(cluster.addresses.map((address) => tcpProxy(address)));
}, 60_000);

afterAll(async () => {
  await Promise.all(proxies.map((proxy) => proxy.close()));
  await cluster[Symbol.asyncDispose]();
});

afterEach(async () => {
  for (const { toTarget, toClient, refuseConnections } of proxies) {
    refuseConnections(false);
    toTarget.resume();
    toClient.resume();
  }
  await Promise.all(clients.splice(0).map((locks) => locks.close()));
});

/** Clients reach each member through its proxy. */
function openLocks(options: LocksOptions = {}, servers: readonly EtcdAddress[] = proxyAddresses()): Locks {
  const locks = createLocks(etcd({ servers, connectTimeout: 30_000 }), { ttl: "9s", order: "strict", ...options });
  clients.push(locks);
  return locks;
}

function proxyAddresses(): EtcdAddress[] {
  return proxies.map(({ address }) => address as EtcdAddress);
}

const loadOn = (key: string): MajorityLoad =>
  startLoad(
    key,
    Array.from({ length: 4 }, () => openLocks()),
  );

async function findFollower(): Promise<EtcdServer> {
  const leader = await cluster.leader();
  return cluster.servers.find((server) => server !== leader) as EtcdServer;
}

async function waitForQueue(key: string, length: number): Promise<void> {
  const server = await cluster.leader();
  await until(async () => (await readEtcdQueue(server, PREFIX + key)).length === length, {
    within: TIMEOUT_MS,
    what: `${length} entries of ${key}`,
  });
}

const FAULTS: readonly (readonly [string, () => Promise<readonly EtcdServer[]>])[] = [
  ["the leader", async () => [await cluster.leader()]],
  ["a follower", async () => [await findFollower()]],
  ["all of them", async () => cluster.servers],
];

test.each(FAULTS)(
  "%s killed and started again under load: grants go on, held locks stay held",
  async (what, victims) => {
    const key = `killed-${what.replaceAll(" ", "-")}`;
    const held = await openLocks({ ttl: "30s" }).acquire(`${key}-held`);
    await expectGrantsGoOn({ load: loadOn(key), held, rounds, victims, leader: () => cluster.leader() });
  },
  180_000,
);

test("the leader moves under load, ten times: no grant fails, and no lock is lost", async () => {
  const held = await openLocks().acquire("moved-held");
  const load = loadOn("moved");
  for (let move = 0; move < 10; move++) {
    await load.waitForGrants(5, "the load");
    await cluster.moveLeader(await findFollower());
  }
  await load.waitForGrants(5, "the load");
  expect(await load.stop()).toEqual({ maxInside: 1, tokensRose: true });
  expect(load.failures).toEqual([]);
  held.throwIfLost();
}, 120_000);

test("the leader stopped for a while under load, and continued: grants go on, and no two holders overlap", async () => {
  const held = await openLocks({ ttl: "30s" }).acquire("stopped-held");
  const load = loadOn("stopped");
  for (let round = 0; round < rounds; round++) {
    await load.waitForGrants(20, "the load");
    const leader = await cluster.leader();
    leader.signal("SIGSTOP");
    try {
      await cluster.leaderOtherThan(leader);
      await load.waitForGrants(20, "grants by the other two");
    } finally {
      leader.signal("SIGCONT");
    }
    await load.waitForGrants(20, "grants by all three");
  }
  expect(await load.stop()).toEqual({ maxInside: 1, tokensRose: true });
  held.throwIfLost();
}, 120_000);

test("a stopped leader alone does not keep a lock: its holder loses it before another client has it", async () => {
  const leader = await cluster.leader();
  const index = cluster.servers.indexOf(leader);
  const otherAddresses = cluster.addresses.filter((address) => address !== leader.address);
  const lock = await openLocks({ ttl: "3s" }, [proxyAddresses()[index] as EtcdAddress]).acquire("cut-off");
  let lostAt = Number.POSITIVE_INFINITY;
  lock.signal.addEventListener("abort", () => {
    lostAt = performance.now();
  });
  const waiting = openLocks({}, otherAddresses).acquire("cut-off");
  await waitForQueue("cut-off", 2);
  leader.signal("SIGSTOP");
  let grantedAt: number;
  try {
    const next = await waiting;
    grantedAt = performance.now();
    next.throwIfLost();
  } finally {
    leader.signal("SIGCONT");
  }
  expect(lostAt).toBeLessThanOrEqual(grantedAt);
}, 60_000);

test("a member that falls silent under load is left for another, and the locks of its clients stay held", async () => {
  const [first, ...others] = proxies as [TcpProxy, ...TcpProxy[]];
  for (const proxy of others) proxy.refuseConnections(true);
  const held = await openLocks({ ttl: "9s" }).acquire("silent-held");
  const load = loadOn("silent");
  await load.waitForGrants(20, "the load");
  for (const proxy of others) proxy.refuseConnections(false);
  first.toTarget.pause();
  first.toClient.pause();
  await load.waitForGrants(20, "grants through the others");
  expect(await load.stop()).toEqual({ maxInside: 1, tokensRose: true });
  held.throwIfLost();
  expect(await held.release()).toBe(true);
}, 120_000);

test("without a majority nothing is granted, and a holder loses its lock in time; with one all goes on", async () => {
  const lock = await openLocks({ ttl: "3s" }).acquire("minority");
  const others = openLocks();
  const waiting = others.acquire("minority");
  await waitForQueue("minority", 2);
  const leader = await cluster.leader();
  const stopped = cluster.servers.filter((server) => server !== leader);
  const stoppedAt = performance.now();
  await Promise.all(stopped.map((server) => server.stop("SIGKILL")));
  let isGranted = false;
  void waiting.then(() => {
    isGranted = true;
  });
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the loss" });
  expect(performance.now() - stoppedAt, "by its own clock").toBeLessThan(4_000);
  const failure = await others.acquire("free", { wait: 1_000 }).then(
    () => null,
    (error: { readonly code: string }) => error.code,
  );
  expect(failure, "not busy: nothing holds it").toBe("LOCK_STORE_FAILED");
  expect(isGranted).toBe(false);
  await Promise.all(stopped.map((server) => server.start()));
  const next = await waiting;
  next.throwIfLost();
  expect(await next.release()).toBe(true);
}, 60_000);

test("a waiter whose member is stopped is told of a release by another member", async () => {
  const follower = await findFollower();
  const index = cluster.servers.indexOf(follower);
  const holder = await openLocks().acquire("isolated");
  // the others come second
  const ordered = [index, ...[0, 1, 2].filter((other) => other !== index)];
  const addresses = ordered.map((other) => proxyAddresses()[other] as EtcdAddress);
  const waiting = openLocks({ ttl: "6s" }, addresses).acquire("isolated");
  await waitForQueue("isolated", 2);
  follower.signal("SIGSTOP");
  try {
    await holder.release();
    const lock = await waiting;
    lock.throwIfLost();
    expect(await lock.release()).toBe(true);
  } finally {
    follower.signal("SIGCONT");
  }
}, 60_000);
