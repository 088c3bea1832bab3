// Faults where the mechanisms of the etcd driver meet, against a real server.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { EtcdOptions } from "../../../src/drivers/etcd/driver.ts";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { StreamEvents } from "../../../src/drivers/etcd/gateway.ts";
import { WatchStream } from "../../../src/drivers/etcd/watch-stream.ts";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Answer, Driver } from "../../../src/spi/driver.ts";
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

async function openProxy(): Promise<EtcdProxy> {
  const proxy = await startEtcdProxy([server.address]);
  disposables.push(() => proxy[Symbol.asyncDispose]());
  return proxy;
}

test("a waiting claim whose entry was deleted is not granted when its predecessor goes", async () => {
  newPrefix();
  const pushes: Answer[] = [];
  const first = await openDriver();
  const second = await openDriver(
    {},
    toDriverEvents((_, answer) => answer && pushes.push(answer)),
  );
  const third = await openDriver();
  const [a, b, c] = [makeClaim("k"), makeClaim("k"), makeClaim("k")];
  expect((await first.claim(a)).state).toBe("held");
  expect((await second.claim(b)).state).toBe("waiting");
  const waiting = (await readEtcdQueue(server, `${prefix}k`))[1];
  await new Promise((r) => setTimeout(r, 300));
  await server.runCommand(["del", waiting?.key ?? ""]);
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
  await new Promise((r) => setTimeout(r, 4_000));
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
  const locks = openLocks({ servers: [proxy.address], commandTimeoutMs: 300 }, "1s");
  const other = await locks.acquire("other");
  let deliver: (() => void) | undefined;
  const tag = Buffer.from(`${prefix}late/`).toString("base64").slice(0, 8);
  proxy.rule = (path, body) => {
    if (deliver !== undefined || path !== "/v3/kv/txn" || !body.includes("request_put") || !body.includes(tag))
      return "pass";
    return new Promise<void>((resolve) => {
      deliver = resolve;
    });
  };
  expect(await locks.tryAcquire("late").catch(() => null)).toBe(null);
  await new Promise((r) => setTimeout(r, 3_500));
  deliver?.();
  await new Promise((r) => setTimeout(r, 3_500));
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
  for (let round = 0; round < 40; round++) {
    await new Promise((r) => setTimeout(r, 300));
    await driver.renew([claim]).catch((error: Error) => failures.push(error.message));
  }
  expect(failures).toEqual([]);
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
  const locks = openLocks({ servers: [proxy.address], commandTimeoutMs: 300 }, "1s");
  const other = await locks.acquire("late/b");
  let deliver: (() => void) | undefined;
  let txns = 0;
  const name = Buffer.from(`${prefix}late/`).toString("base64").slice(0, 8);
  proxy.rule = (path, body) => {
    if (path !== "/v3/kv/txn" || !body.includes("request_put") || !body.includes(name) || ++txns !== 2) return "pass";
    return new Promise<void>((resolve) => {
      deliver = resolve;
    });
  };
  expect(await locks.tryAcquire("late").catch(() => null)).toBe(null);
  await until(() => deliver !== undefined, { within: TIMEOUT_MS, what: "the second call" });
  await until(async () => (await readEtcdState(server)).entries.some(({ key }) => key.startsWith(`${prefix}\0`)), {
    within: TIMEOUT_MS,
    what: "the tombstone",
  });
  deliver?.();
  await new Promise((r) => setTimeout(r, 3_500));
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
  for (let round = 0; round < 8; round++) {
    expect((await driver.renew([claim, other])).map((answer) => answer?.state)).toEqual(["held", "held"]);
    await new Promise((r) => setTimeout(r, 400));
  }
  expect((await readEtcdQueue(server, `${prefix}k`)).length).toBe(1);
});

test("a waiter notices that its stream is silent, and hears of the next release at once", async () => {
  newPrefix();
  const proxy = await openProxy();
  const locks = openLocks({ servers: [proxy.address] }, "30s");
  const others = openLocks({}, "30s");
  const held = await others.acquire("k");
  const waiting = locks.acquire("k");
  await until(async () => (await readEtcdQueue(server, `${prefix}k`)).length === 2, {
    within: TIMEOUT_MS,
    what: "the waiter",
  });
  await new Promise((r) => setTimeout(r, 500));
  proxy.muteStreams();
  await new Promise((r) => setTimeout(r, 8_000));
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
  for (let round = 0; round < 15; round++) {
    expect((await two.renew([claim]))[0]?.state).toBe("held");
    expect((await one.renew([claim]))[0]?.state).toBe("held");
    await new Promise((r) => setTimeout(r, 200));
  }
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
  newPrefix();
  const locks = openLocks({}, "30s");
  const others = openLocks({}, "31s");
  const lock = await locks.acquire("k");
  const waiting = others.acquire("k");
  await until(async () => (await readEtcdQueue(server, `${prefix}k`)).length === 2, {
    within: TIMEOUT_MS,
    what: "the waiter",
  });
  await new Promise((r) => setTimeout(r, 500));
  const [first] = await readEtcdQueue(server, `${prefix}k`);
  await server.call("/v3/lease/revoke", { ID: first?.lease });
  const startedAt = performance.now();
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the loss" });
  expect(performance.now() - startedAt).toBeLessThan(1_000);
  const next = await waiting;
  const queue = await readEtcdQueue(server, `${prefix}k`);
  expect(queue.length).toBe(1);
  expect(next.signal.aborted).toBe(false);
  await new Promise((r) => setTimeout(r, 600));
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
  newPrefix();
  const own = await startEtcd();
  disposables.push(() => own[Symbol.asyncDispose]());
  const driver = await openDriver({ servers: [own.address] });
  const [first, second] = [makeClaim("key"), makeClaim("key")];
  await driver.claim(first);
  await driver.claim(second);
  // its predecessor, and its own entry
  await until(async () => (await countWatches(own)) === 2, { within: 10_000, what: "the watches" });
  await driver.release([{ claim: first, hasUnansweredClaim: false }]);
  expect((await driver.renew([second]))[0]?.state).toBe("held");
  expect(await driver.detach?.([second])).toEqual([true]);
  driver.forget?.(second);
  await until(async () => (await countWatches(own)) === 0, { within: 10_000, what: "the end of the watches" });
});

/** As the server counts them. */
async function countWatches(target: EtcdServer): Promise<number> {
  const metrics = await (await fetch(`${target.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watcher_total (\d+)$/m.exec(metrics)?.[1]);
}
