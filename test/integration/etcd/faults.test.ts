// Faults where the mechanisms of the etcd driver meet, against a real server.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { StreamEvents } from "../../../src/drivers/etcd/client/gateway.ts";
import { WatchStream } from "../../../src/drivers/etcd/client/watch-stream.ts";
import type { EtcdOptions } from "../../../src/drivers/etcd/driver.ts";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { systemClock } from "../../../src/util/clock.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS, toDriverEvents } from "../../support/driver-events.ts";
import type { EtcdServer } from "../../support/stores/etcd.ts";
import { enableEtcdAuth, startEtcd, startEtcdCluster } from "../../support/stores/etcd.ts";
import { readEtcdQueue, readEtcdState } from "../../support/stores/etcd-inspector.ts";
import type { EtcdProxy } from "../../support/stores/etcd-proxy.ts";
import { startEtcdProxy } from "../../support/stores/etcd-proxy.ts";

const TIMEOUT_MS = 20_000;

let server: EtcdServer;
let prefix = "";
let count = 0;
const disposables: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  server = await startEtcd();
}, 60_000);
afterAll(() => server[Symbol.asyncDispose]());
afterEach(async () => {
  for (const dispose of disposables.splice(0).reverse()) await dispose();
});

function newPrefix(): void {
  prefix = `f${++count}/`;
}

async function openDriver(options: Partial<EtcdOptions> = {}, events = NO_EVENTS): Promise<Driver> {
  const driver = etcd({ servers: [server.address], prefix, ...options });
  await driver.open(events);
  disposables.push(() => driver.close());
  return driver;
}

function openLocks(options: Partial<EtcdOptions> = {}, ttl: LocksOptions["ttl"] = "10s"): Locks {
  const locks = createLocks(etcd({ servers: [server.address], prefix, ...options }), { ttl });
  disposables.push(async () => locks[Symbol.asyncDispose]());
  return locks;
}

/** A server of its own, where a test counts what the server counts. */
async function startOwn(): Promise<EtcdServer> {
  newPrefix();
  const own = await startEtcd();
  disposables.push(() => own[Symbol.asyncDispose]());
  return own;
}

async function openProxy(target = server): Promise<EtcdProxy> {
  const proxy = await startEtcdProxy([target.address]);
  disposables.push(() => proxy[Symbol.asyncDispose]());
  return proxy;
}

test("a waiting claim whose entry was deleted is not granted when its predecessor goes", async () => {
  const own = await startOwn();
  const pushes: Answer[] = [];
  const servers = [own.address];
  const first = await openDriver({ servers });
  const second = await openDriver(
    { servers },
    toDriverEvents((_, answer) => answer && pushes.push(answer)),
  );
  const third = await openDriver({ servers });
  const [a, b, c] = [makeClaim("k"), makeClaim("k"), makeClaim("k")];
  expect((await first.claim(a)).state).toBe("held");
  expect((await second.claim(b)).state).toBe("waiting");
  const waiting = (await readEtcdQueue(own, `${prefix}k`))[1];
  // the holder watches its own entry, the waiter both
  await waitForWatches(own, 3);
  await own.runCommand(["del", waiting?.key ?? ""]);
  expect((await third.claim(c)).state).toBe("waiting");
  await first.release([{ claim: a, hasUnansweredClaim: false }]);
  await until(async () => (await third.renew([c]))[0]?.state === "held", { within: TIMEOUT_MS, what: "the third" });
  expect(pushes).toEqual([]);
});

test("a lock with a short ttl survives a stream that is not answered, while the calls are", async () => {
  newPrefix();
  const proxy = await openProxy();
  const locks = openLocks({ servers: [proxy.address] }, "2s");
  const lock = await locks.rw("k").read.acquire();
  await until(() => proxy.calls.length > 10, { within: TIMEOUT_MS, what: "renewals" });
  proxy.muteStreams();
  const countKeepAlives = (): number => proxy.calls.filter((path) => path.endsWith("keepalive")).length;
  const before = countKeepAlives();
  // one comes each third of the ttl
  await until(() => lock.signal.aborted || countKeepAlives() - before >= 5, { within: TIMEOUT_MS, what: "renewals" });
  expect(lock.signal.aborted).toBe(false);
  await lock.release();
});

test("a list ends, although another program has several locks with one lease", async () => {
  newPrefix();
  const driver = await openDriver();
  const lease = (await server.call("/v3/lease/grant", { TTL: "60" })).body.ID;
  for (const key of ["a", "b", "c", "d", "e"])
    await server.call("/v3/kv/put", { key: Buffer.from(`${prefix}${key}/7587`).toString("base64"), value: "", lease });
  const keys: (string | undefined)[] = [];
  let after: string | undefined;
  for (let pages = 0; pages < 10; pages++) {
    const page = await driver.list({ prefix: "" }, { max: 2, after });
    keys.push(...page.items.map(({ locks }) => locks[0]?.key));
    after = page.next;
    if (after === undefined) break;
  }
  expect(keys).toEqual(["a", "b", "c", "d", "e"]);
});

test("a claim that is refused in a renewal does not fail those beside it", async () => {
  newPrefix();
  const driver = await openDriver();
  const [held, first, low] = [makeClaim("x"), makeClaim("k"), makeClaim("k", { floor: 2n ** 61n })];
  await driver.claim(held);
  await driver.claim(first);
  expect((await driver.claim(low)).state).toBe("waiting");
  await driver.release([{ claim: first, hasUnansweredClaim: false }]);
  const answers = await driver.renew([held, low]);
  expect(answers[0]?.state).toBe("held");
});

test("a claim call that arrives after its claim was released, and its ttl has passed, leaves no entry", async () => {
  newPrefix();
  const proxy = await openProxy();
  const locks = openLocks({ servers: [proxy.address] }, "1s");
  const other = await locks.acquire("other");
  const late = holdTxn(proxy, "late/", 1);
  expect(await locks.tryAcquire("late").catch(() => null)).toBe(null);
  await waitForTombstone();
  const hasEnded = await startLease(1);
  await until(hasEnded, { within: TIMEOUT_MS, what: "the end of a lease with its ttl" });
  await late.deliver();
  expect(other.signal.aborted).toBe(false);
  expect((await readEtcdQueue(server, `${prefix}late`)).map(({ key }) => key)).toEqual([]);
  await other.release();
}, 30_000);

test("open() against a server that is not etcd says so", async () => {
  const { createServer } = await import("node:http");
  const web = createServer((_, response) => response.end("{}"));
  await new Promise<void>((resolve) => void web.listen(0, "127.0.0.1", resolve));
  disposables.push(async () => web.close());
  const { port } = web.address() as import("node:net").AddressInfo;
  const driver = etcd({ servers: [{ host: "127.0.0.1", port }] });
  await expect(driver.open(NO_EVENTS)).rejects.toThrow(/is it etcd/);
  await driver.close();
});

test("a lock lives behind a load balancer that spreads the calls over the members", async () => {
  newPrefix();
  const cluster = await startEtcdCluster();
  disposables.push(() => cluster[Symbol.asyncDispose]());
  const balancer = await startEtcdProxy(cluster.addresses);
  disposables.push(() => balancer[Symbol.asyncDispose]());
  const driver = await openDriver({ servers: [balancer.address] });
  const claim = makeClaim("k", { ttlMs: 2_000 });
  expect((await driver.claim(claim)).state).toBe("held");
  const failures: string[] = [];
  const countKeepAlives = (): number => balancer.calls.filter((path) => path.endsWith("keepalive")).length;
  const areEnough = async (): Promise<boolean> => {
    const answers = await driver.renew([claim]).catch((error: Error) => void failures.push(error.message));
    if (answers !== undefined) expect(answers[0]?.state).toBe("held");
    return countKeepAlives() >= 15;
  };
  await until(areEnough, { within: TIMEOUT_MS, what: "15 keep-alives" });
  // on a busy machine the members may elect another leader, and say so
  expect(failures.filter((message) => !message.startsWith("etcd: etcdserver:"))).toEqual([]);
}, 60_000);

test("a watch that the server ends, since the history before it was compacted, is opened again", async () => {
  const sent: Record<string, unknown>[] = [];
  let events: StreamEvents | undefined;
  const changes: unknown[] = [];
  const stream = new WatchStream({
    open: async (streamEvents) => {
      events = streamEvents;
      return {
        write: (message) => void sent.push(message as Record<string, unknown>),
        close: (error) => streamEvents.onEnd(error ?? new Error("closed")),
      };
    },
    ...{ clock: systemClock, timeoutMs: 1_000, random: () => 0 },
    onBreak: () => undefined,
    onReopened: () => undefined,
  });
  const watch = stream.watch({ key: "a2V5" }, { onEvent: (event) => changes.push(event), onCreated: () => undefined });
  await until(() => sent.length === 1, { within: 1_000, what: "the watch" });
  events?.onMessage({ result: { header: { revision: "5" }, watch_id: "1", created: true } });
  expect(watch.since).toBe(5n);
  events?.onMessage({ result: { header: {}, watch_id: "1", canceled: true, compact_revision: "8" } });
  expect(watch.since).toBe(null);
  await until(() => sent.length === 2, { within: 5_000, what: "the watch again" });
  stream.close();
});

test("a try on a key below which another one is held arrives late: it leaves no entry", async () => {
  newPrefix();
  const proxy = await openProxy();
  const locks = openLocks({ servers: [proxy.address] }, "1s");
  const other = await locks.acquire("late/b");
  const late = holdTxn(proxy, "late/", 2);
  expect(await locks.tryAcquire("late").catch(() => null)).toBe(null);
  await waitForTombstone();
  await late.deliver();
  expect(other.signal.aborted).toBe(false);
  expect((await readEtcdQueue(server, `${prefix}late`)).map(({ key }) => key)).toEqual([]);
  await other.release();
}, 30_000);

test("a lock without renewal and with a short ttl ends, although its ttl is one of many", async () => {
  newPrefix();
  const driver = await openDriver();
  for (let seconds = 20; seconds < 36; seconds++)
    await driver.claim(makeClaim(`k${seconds}`, { ttlMs: seconds * 1_000 }));
  const short = makeClaim("short", { ttlMs: 1_000 });
  expect((await driver.claim(short)).state).toBe("held");
  const startedAt = performance.now();
  await until(async () => (await readEtcdQueue(server, `${prefix}short`)).length === 0, {
    within: 40_000,
    what: "its end",
  });
  expect(performance.now() - startedAt).toBeLessThan(5_000);
}, 60_000);

test.each([
  [true, "p/"],
  [false, "p/"],
  [true, ""],
  [false, ""],
])(
  "T21: keys of all kinds are apart (compatible %s, prefix %j)",
  async (compatible, tail) => {
    newPrefix();
    const own = await startEtcd();
    disposables.push(() => own[Symbol.asyncDispose]());
    const driver = await openDriver({ servers: [own.address], prefix: tail, compatible });
    const keys = [
      "a",
      "a/b",
      "a/b/c",
      "a/",
      "a//",
      "//",
      "/",
      "/a",
      "%2F",
      "%252F",
      "a%2Fb",
      "%",
      "%25",
      "é/ü",
      "\u{1F512}",
      "\uffff",
      "x".repeat(512),
      `${"y/".repeat(256)}`,
      "0",
      "~",
      ".",
    ];
    const claims = keys.map((key) => makeClaim(key));
    for (const claim of claims)
      expect([claim.locks[0].key, (await driver.claim(claim)).state]).toEqual([claim.locks[0].key, "held"]);
    const listed: string[] = [];
    let after: string | undefined;
    do {
      const page = await driver.list({ prefix: "" }, { max: 4, after });
      listed.push(...page.items.map(({ locks }) => locks[0]?.key as string));
      after = page.next;
    } while (after !== undefined && listed.length < 100);
    expect(listed.sort()).toEqual([...keys].sort());
    for (const key of keys)
      expect((await driver.list({ key }, { max: 5 })).items.map(({ locks }) => locks[0]?.key)).toEqual([key]);
    for (const key of ["a/", "é", "\u{1F512}", "%"])
      expect(
        (await driver.list({ prefix: key }, { max: 50 })).items.map(({ locks }) => locks[0]?.key as string).sort(),
      ).toEqual(keys.filter((k) => k.startsWith(key)).sort());
    for (const key of keys) expect((await driver.claim(makeClaim(key, { wait: false }))).state).toBe("none");
    const waiters = keys.map((key) => makeClaim(key));
    for (const claim of waiters) expect((await driver.claim(claim)).state).toBe("waiting");
    await driver.release(claims.map((claim) => ({ claim, hasUnansweredClaim: false })));
    expect((await driver.renew(waiters)).map((answer) => answer?.state)).toEqual(keys.map(() => "held"));
  },
  60_000,
);

test("50 calls under way when the token ends, and a stream that is open", async () => {
  newPrefix();
  const own = await startEtcd({ tokenTtlSeconds: 2 });
  disposables.push(() => own[Symbol.asyncDispose]());
  await enableEtcdAuth(own, "pw", prefix);
  const proxy = await startEtcdProxy([own.address]);
  disposables.push(() => proxy[Symbol.asyncDispose]());
  const locks = openLocks({ servers: [proxy.address], user: "app", password: "pw" }, "30s");
  const others = openLocks({ servers: [own.address], user: "app", password: "pw" }, "30s");
  const held = await others.acquire("w");
  const waiting = locks.acquire("w");
  await new Promise((r) => setTimeout(r, 4_000));
  const countAuthentications = (): number => proxy.calls.filter((path) => path.endsWith("authenticate")).length;
  const before = countAuthentications();
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => locks.acquire(`k${i}`)));
  expect(countAuthentications() - before).toBeLessThanOrEqual(1);
  await held.release();
  await (await waiting).release();
  await Promise.all(all.map((lock) => lock.release()));
}, 60_000);

test("claims under way when their lease was revoked are granted on another one", async () => {
  newPrefix();
  const driver = await openDriver();
  await driver.claim(makeClaim("first", { ttlMs: 60_000 }));
  const leases = (await readEtcdState(server)).entries
    .filter(({ key }) => key.startsWith(prefix))
    .map(({ lease }) => lease);
  await server.call("/v3/lease/revoke", { ID: leases[0] });
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) => driver.claim(makeClaim(`k${i}`, { wait: false }))),
  );
  expect(answers.map(({ state }) => state)).toEqual(answers.map(() => "held"));
});

test("a claim that was given up and is attached again keeps its entry", async () => {
  newPrefix();
  const driver = await openDriver();
  const claim = makeClaim("k", { ttlMs: 2_000 });
  const other = makeClaim("other", { ttlMs: 2_000 });
  await driver.claim(other);
  expect((await driver.claim(claim)).state).toBe("held");
  driver.forget?.(claim);
  const hasEnded = await startLease(2);
  const isOver = async (): Promise<boolean> => {
    expect((await driver.renew([claim, other])).map((answer) => answer?.state)).toEqual(["held", "held"]);
    return hasEnded();
  };
  await until(isOver, { within: TIMEOUT_MS, what: "the end of a lease with its ttl" });
  expect((await readEtcdQueue(server, `${prefix}k`)).length).toBe(1);
});

test("a waiter notices that its stream is silent, and hears of the next release at once", async () => {
  const own = await startOwn();
  const proxy = await openProxy(own);
  const locks = openLocks({ servers: [proxy.address] }, "30s");
  const others = openLocks({ servers: [own.address] }, "30s");
  const held = await others.acquire("k");
  const waiting = locks.acquire("k");
  // the holder watches its queue, the waiter its own entry and the one before it
  await waitForWatches(own, 3);
  expect(proxy.streamCount).toBe(1);
  proxy.muteStreams();
  await until(() => proxy.streamCount === 2, { within: TIMEOUT_MS, what: "another stream" });
  await waitForWatches(own, 3);
  await held.release();
  const startedAt = performance.now();
  const lock = await waiting;
  expect(performance.now() - startedAt).toBeLessThan(1_000);
  await lock.release();
}, 30_000);

test("two clients that renew one claim in turn keep it", async () => {
  newPrefix();
  const [one, two, third] = [await openDriver(), await openDriver(), await openDriver()];
  const claim = makeClaim("k", { ttlMs: 2_000 });
  expect((await one.claim(claim)).state).toBe("held");
  const hasEnded = await startLease(2);
  const isOver = async (): Promise<boolean> => {
    expect((await two.renew([claim]))[0]?.state).toBe("held");
    expect((await one.renew([claim]))[0]?.state).toBe("held");
    return hasEnded();
  };
  await until(isOver, { within: TIMEOUT_MS, what: "the end of a lease with its ttl" });
  const both = await Promise.all(Array.from({ length: 40 }, (_, i) => (i % 2 ? one : two).renew([claim])));
  expect(new Set(both.map((answers) => answers[0]?.state))).toEqual(new Set(["held"]));
  expect((await third.claim(makeClaim("k", { wait: false }))).state).toBe("none");
  expect(await two.release([{ claim, hasUnansweredClaim: false }])).toEqual([true]);
  expect((await one.renew([claim]))[0]).toMatchObject({ state: "none" });
}, 30_000);

test("close() with locks held and calls under way ends at once, and no error is left", async () => {
  newPrefix();
  const proxy = await openProxy();
  const driver = etcd({ servers: [proxy.address], prefix });
  await driver.open(NO_EVENTS);
  const claims = Array.from({ length: 20 }, (_, i) => makeClaim(`k${i % 7}`, { ttlMs: 3_000 }));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  const under = [
    ...claims.map((claim) => driver.renew([claim])),
    driver.list({ prefix: "" }, { max: 5 }),
    driver.claim(makeClaim("z")),
    driver.release([{ claim: claims[0] as never, hasUnansweredClaim: true }]),
  ];
  const startedAt = performance.now();
  await driver.close();
  await Promise.allSettled(under);
  expect(performance.now() - startedAt).toBeLessThan(3_000);
  await expect(driver.claim(makeClaim("y"))).rejects.toThrow(/closed/);
});

test("a lease that is revoked from outside: the holder is told within a second, the waiter is granted", async () => {
  const own = await startOwn();
  const locks = openLocks({ servers: [own.address] }, "30s");
  const others = openLocks({ servers: [own.address] }, "31s");
  const lock = await locks.acquire("k");
  const waiting = others.acquire("k");
  // the holder watches its queue, the waiter its own entry and the one before it
  await waitForWatches(own, 3);
  const [first] = await readEtcdQueue(own, `${prefix}k`);
  await own.call("/v3/lease/revoke", { ID: first?.lease });
  const startedAt = performance.now();
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the loss" });
  expect(performance.now() - startedAt).toBeLessThan(1_000);
  const next = await waiting;
  const queue = await readEtcdQueue(own, `${prefix}k`);
  expect(queue.length).toBe(1);
  // it watches its queue, which was read then
  await waitForWatches(own, 1);
  expect(next.signal.aborted).toBe(false);
  await next.release();
}, 30_000);

test("claims that wait for a connection have their whole time, and renewals do not wait behind them", async () => {
  newPrefix();
  const proxy = await openProxy();
  const driver = await openDriver({ servers: [proxy.address], commandTimeoutMs: 1_500 });
  const held = makeClaim("held", { ttlMs: 10_000 });
  await driver.claim(held);
  proxy.rule = (path) => (path === "/v3/kv/txn" ? new Promise((resolve) => void setTimeout(resolve, 150)) : "pass");
  const claims = Promise.all(Array.from({ length: 1_200 }, (_, index) => driver.claim(makeClaim(`k${index}`))));
  expect((await driver.renew([held]))[0]?.state).toBe("held");
  expect(new Set((await claims).map(({ state }) => state))).toEqual(new Set(["held"]));
}, 30_000);

test("a claim that is twice in one call of releases is released", async () => {
  newPrefix();
  const driver = await openDriver();
  const claim = makeClaim("key", { ttlMs: 10_000 });
  await driver.claim(claim);
  for (const hasUnansweredClaim of [false, true]) {
    const release = { claim, hasUnansweredClaim };
    expect(await driver.release([release, release])).toHaveLength(2);
  }
  expect((await readEtcdQueue(server, `${prefix}key`)).length).toBe(0);
});

test("a lock that was waited for, and detached, leaves no watch", async () => {
  const own = await startOwn();
  const driver = await openDriver({ servers: [own.address] });
  const [first, second] = [makeClaim("key"), makeClaim("key")];
  await driver.claim(first);
  await driver.claim(second);
  // its predecessor, and its own entry
  await waitForWatches(own, 2);
  await driver.release([{ claim: first, hasUnansweredClaim: false }]);
  expect((await driver.renew([second]))[0]?.state).toBe("held");
  expect(await driver.detach?.([second])).toEqual([true]);
  driver.forget?.(second);
  await waitForWatches(own, 0);
});

test("a renewal of 1,000 locks that can be recalled takes as many requests as that of one", async () => {
  newPrefix();
  const proxy = await openProxy();
  const driver = await openDriver({ servers: [proxy.address] });
  const claims = Array.from({ length: 1_000 }, (_, index) => makeClaim(`k${index}`, { recall: true }));
  for (const { state } of await Promise.all(claims.map((claim) => driver.claim(claim)))) expect(state).toBe("held");
  const readsOf = async (renewed: readonly Claim[]): Promise<number> => {
    const before = proxy.calls.length;
    for (const answer of await driver.renew(renewed)) expect(answer).toMatchObject({ state: "held" });
    return proxy.calls.slice(before).filter((path) => path === "/v3/kv/txn").length;
  };
  // each is read once, after its watch was made; from then on none
  await until(async () => (await readsOf(claims)) === 0, { within: TIMEOUT_MS, what: "a renewal without reads" });
  expect(await readsOf(claims.slice(0, 1))).toBe(0);
  // what is not read is known all the same
  const waiter = await openDriver();
  expect((await waiter.claim(makeClaim("k7"))).state).toBe("waiting");
  const isRecalled = async (): Promise<boolean> => {
    const [answer] = await driver.renew([claims[7] as Claim]);
    return answer?.state === "held" && answer.recalled === true;
  };
  await until(isRecalled, { within: TIMEOUT_MS, what: "the recall" });
  await until(async () => (await readsOf(claims)) === 0, { within: TIMEOUT_MS, what: "a renewal without reads again" });
}, 60_000);

/** So many, as the server counts them. */
async function waitForWatches(target: EtcdServer, expected: number): Promise<void> {
  const count = /^etcd_debugging_mvcc_watcher_total (\d+)$/m;
  await until(async () => Number(count.exec(await target.readMetrics())?.[1]) === expected, {
    within: TIMEOUT_MS,
    what: `${expected} watches`,
  });
}

async function waitForTombstone(): Promise<void> {
  await until(async () => (await readEtcdState(server)).entries.some(({ key }) => key.startsWith(`${prefix}\0`)), {
    within: TIMEOUT_MS,
    what: "the tombstone",
  });
}

/** Has a lease that is granted now, and not kept alive, ended? */
async function startLease(seconds: number): Promise<() => Promise<boolean>> {
  const { ID } = (await server.call("/v3/lease/grant", { TTL: String(seconds) })).body;
  return async () => (await server.call("/v3/lease/timetolive", { ID })).body.TTL === "-1";
}

/** Holds the n-th transaction that writes below this key, until it is delivered and answered. */
function holdTxn(proxy: EtcdProxy, key: string, nth: number): { deliver(): Promise<void> } {
  const name = Buffer.from(`${prefix}${key}`).toString("base64").slice(0, 8);
  let count = 0;
  let held = "";
  let pass = (): void => undefined;
  proxy.rule = (path, body) => {
    if (path !== "/v3/kv/txn" || !body.includes("request_put") || !body.includes(name) || ++count !== nth)
      return "pass";
    held = body;
    return new Promise<void>((resolve) => {
      pass = resolve;
    });
  };
  return {
    async deliver() {
      await until(() => held !== "", { within: TIMEOUT_MS, what: "the call" });
      pass();
      await until(() => proxy.answered.includes(held), { within: TIMEOUT_MS, what: "its answer" });
    },
  };
}
