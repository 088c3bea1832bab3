import assert from "node:assert/strict";
// as an external driver author does: from the package, not its sources
import { conformance } from "holdfast/conformance";
import type { Claim, Driver } from "holdfast/driver";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, onTestFinished, test } from "vitest";
import { pushingDriver } from "../../examples/driver/pushing-driver.ts";
import { until } from "../../src/testing/until.ts";
import type { TcpProxy } from "../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../src/torture/tcp-proxy.ts";
import { makeClaim } from "../support/claims.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import type { RedisServer } from "../support/stores/redis.ts";
import { startRedis } from "../support/stores/redis.ts";

let server: RedisServer;
let admin: Redis;

beforeAll(async () => {
  server = await startRedis();
  admin = new Redis(server.url);
}, 180_000);

afterAll(async () => {
  admin.disconnect();
  await server.stop();
});

conformance({ describe, test }, "pushing", {
  async open() {
    await admin.flushdb();
    return { driver: () => pushingDriver(server.url) };
  },
  traits: { manyKeys: false },
  keys: 500,
  random: { seeds: 1 },
  timeScale: 0.5,
});

interface OpenDriver {
  readonly driver: Driver;
  /** What the driver told the core, in order. */
  readonly events: string[];
}

async function openDriver(port: number): Promise<OpenDriver> {
  const driver = pushingDriver(`redis://127.0.0.1:${port}`);
  onTestFinished(() => driver.close());
  const events: string[] = [];
  const refuse = (name: string) => (): null => assert.fail(`${name}() is not for this driver`);
  await driver.open({
    recheck: (id) => void events.push(`recheck ${id}`),
    disconnected: () => void events.push("disconnected"),
    reconnected: () => void events.push("reconnected"),
    pushed: refuse("pushed"),
    recalled: refuse("recalled"),
    heldTokens: refuse("heldTokens"),
  });
  return { driver, events };
}

/** Claims a key for one client, and for another one, which has to wait. */
async function claimInTurn(
  key: string,
  holder: OpenDriver,
  waiter: OpenDriver,
): Promise<{ release(): Promise<void>; waiting: Claim }> {
  const [held, waiting] = [makeClaim(key), makeClaim(key)];
  assert.equal((await holder.driver.claim(held)).state, "held");
  assert.equal((await waiter.driver.claim(waiting)).state, "waiting");
  return {
    waiting,
    release: () => release(holder.driver, held),
  };
}

async function release(driver: Driver, claim: Claim): Promise<void> {
  assert.deepEqual(await driver.release([{ claim, hasUnansweredClaim: false }]), [true]);
}

test("a grant that was missed during a break is asked for, and the next one is pushed again", async () => {
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
  const [holder, waiter] = [await openDriver(server.port), await openDriver(portOf(proxy))];

  const first = await claimInTurn("first", holder, waiter);
  await first.release();
  await until(() => waiter.events.length > 0, { within: 5_000, what: "the push" });
  assert.deepEqual(waiter.events.splice(0), [`recheck ${first.waiting.id}`]);

  const second = await claimInTurn("second", holder, waiter);
  proxy.refuseConnections(true);
  proxy.disconnect();
  await until(() => waiter.events.length >= 2, { within: 5_000, what: "the break" });
  await second.release();
  proxy.refuseConnections(false);
  await until(() => waiter.events.filter((event) => event === "reconnected").length === 2, {
    within: 5_000,
    what: "both connections",
  });
  assert.deepEqual(waiter.events.splice(0).slice(0, 2), ["disconnected", "disconnected"]);
  assert.equal((await waiter.driver.renew([second.waiting]))[0]?.state, "held");

  const third = await claimInTurn("third", holder, waiter);
  await third.release();
  await until(() => waiter.events.length > 0, { within: 5_000, what: "the push after the break" });
  assert.deepEqual(waiter.events, [`recheck ${third.waiting.id}`]);
  assert.deepEqual(holder.events, []);
});

function portOf({ address }: TcpProxy): number {
  return "port" in address ? address.port : assert.fail("the proxy has no port");
}

test.each(["PUBSUB", "NORMAL"])("the driver reports a break of the %s connection alone to the core", async (type) => {
  const { events } = await openDriver(server.port);
  await admin.call("CLIENT", "KILL", "TYPE", type);
  await until(() => events.length >= 2, { within: 5_000, what: "the new connection" });
  assert.deepEqual(events, ["disconnected", "reconnected"]);
});

test("a driver whose store was not there can be opened later, and leaves no connection behind", async () => {
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
  proxy.refuseConnections(true);
  const driver = pushingDriver(`redis://127.0.0.1:${portOf(proxy)}`);
  await assert.rejects(driver.open(NO_EVENTS));
  proxy.refuseConnections(false);
  await driver.open(NO_EVENTS);
  assert.equal((await driver.claim(makeClaim("later"))).state, "held");
  assert.equal(proxy.connections(), 2);
  await driver.close();
  await until(() => proxy.connections() === 0, { within: 5_000, what: "the end of both connections" });
});

test("a change that is written long after its read grants no lower token than what came and went meanwhile", async () => {
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
  const [slow, fast] = [await openDriver(portOf(proxy)), await openDriver(server.port)];
  const readsBefore = await countReads();
  proxy.toClient.delay(200);
  const lateClaim = makeClaim("idle");
  const answer = slow.driver.claim(lateClaim).catch(() => slow.driver.claim(lateClaim)); // as the core repeats a call
  await until(async () => (await countReads()) > readsBefore, { within: 5_000, what: "the read" });
  const claim = makeClaim("idle");
  const earlier = await fast.driver.claim(claim);
  await release(fast.driver, claim);
  const releasedAt = performance.now();
  await until(() => performance.now() > releasedAt + 5, { within: 5_000, what: "the clock to pass the token" });
  await fast.driver.renew([claim]); // drops what has run out
  const later = await answer;
  assert.ok(earlier.state === "held" && later.state === "held");
  assert.ok(later.token > earlier.token);
});

test("a change that is written more than a second after its read is refused", async () => {
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
  const { driver } = await openDriver(portOf(proxy));
  proxy.toClient.delay(1_100);
  await assert.rejects(driver.claim(makeClaim("late")), /late/);
  assert.equal(await admin.exists("lock:late"), 0);
});

async function countReads(): Promise<number> {
  return Number(/^cmdstat_get:calls=(\d+)/m.exec(await admin.info("commandstats"))?.[1] ?? 0);
}
