// The client's state machine under a clock that tests advance: its pings, silent servers, and the end of its session.

import { expect, test } from "vitest";
import { OP, XID } from "../../../../../src/drivers/zookeeper/client/records.ts";
import { exponential, toBackoffMs } from "../../../../../src/drivers/zookeeper/client/server-list.ts";
import type { ZooKeeperOptions } from "../../../../../src/drivers/zookeeper/client/zookeeper.ts";
import { ZooKeeper } from "../../../../../src/drivers/zookeeper/client/zookeeper.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import type { ScriptedServers } from "./scripted-servers.ts";
import { createScriptedServers } from "./scripted-servers.ts";

const TIMEOUT_MS = 9_000;
const PING_FRAME: [number, number] = [XID.ping, OP.ping];

type Fixture = {
  readonly zk: ZooKeeper;
  readonly clock: FakeClock;
  readonly servers: ScriptedServers;
  readonly events: string[];
  readonly opening: Promise<void>;
};

function createFixture(options: Partial<ZooKeeperOptions> = {}): Fixture {
  const [clock, servers, events] = [new FakeClock(), createScriptedServers(), [] as string[]];
  const addresses = ["a", "b", "c"].map((host) => ({ host, port: 2_181 }));
  const zk = new ZooKeeper({
    servers: addresses,
    sessionMs: TIMEOUT_MS,
    clock,
    connector: servers.dial,
    random: () => 0.5,
    ...options,
  });
  const opening = zk.open({
    onConnected: (isRenewed) => events.push(isRenewed ? "new session" : "same session"),
    onSuspended: () => events.push("suspended"),
    onExpired: () => events.push("expired"),
  });
  return { zk, clock, servers, events, opening };
}

/** A client with session 7 on the newest connection. */
async function connectedFixture(options: Partial<ZooKeeperOptions> = {}): Promise<Fixture> {
  const fixture = createFixture(options);
  fixture.servers.peer.accept();
  fixture.servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  await fixture.opening;
  fixture.servers.peer.sent();
  return fixture;
}

test("pings are sent a fifteenth of the session after the last send, whatever is received", async () => {
  const { clock, servers } = await connectedFixture();
  await clock.advance(TIMEOUT_MS / 30);
  servers.peer.answer(XID.setWatches);
  await clock.advance(TIMEOUT_MS / 30 - 1);
  expect(servers.peer.sent()).toEqual([]);
  await clock.advance(1);
  expect(servers.peer.sent()).toEqual([PING_FRAME]);
  servers.peer.answer(XID.ping);
  await clock.advance(TIMEOUT_MS / 15);
  expect(servers.peer.sent()).toEqual([PING_FRAME]);
});

test("a sent request postpones the next ping", async () => {
  const { zk, clock, servers } = await connectedFixture();
  await clock.advance(TIMEOUT_MS / 30);
  const pendingDelete = zk.delete("/a");
  await clock.advance(0);
  const [request] = servers.peer.sent();
  servers.peer.answer((request as [number, number])[0]);
  await pendingDelete;
  await clock.advance(TIMEOUT_MS / 15 - 1);
  expect(servers.peer.sent()).toEqual([]);
  await clock.advance(1);
  expect(servers.peer.sent()).toEqual([PING_FRAME]);
});

test("a server that is silent for two thirds of the session is given up, and the session is kept for the next", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  await clock.advance((TIMEOUT_MS * 2) / 3 - 1);
  expect(events).toEqual(["new session"]);
  await clock.advance(1);
  expect(events).toEqual(["new session", "suspended"]);
  expect(servers.peers[0]?.isClosed).toBe(true);
  expect(servers.peers).toHaveLength(2);
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  expect(events.at(-1)).toBe("same session");
  expect(zk.remainingMs()).toBeCloseTo(TIMEOUT_MS * 0.99);
});

test("the session ends by the client's clock at 99 hundredths of its time after the last answered send, connected or not", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  // the ping is answered late: its send time counts
  const pinged = TIMEOUT_MS / 15;
  await clock.advance(pinged);
  expect(servers.peer.sent()).toEqual([PING_FRAME]);
  await clock.advance(2_000);
  servers.peer.answer(XID.ping);
  expect(zk.remainingMs()).toBeCloseTo(TIMEOUT_MS * 0.99 - 2_000);
  servers.peer.cut();
  const pendingDelete = zk.delete("/a").catch((error: unknown) => error);
  await clock.advance(TIMEOUT_MS * 0.99 - 2_000 - 1);
  expect(events).toEqual(["new session", "suspended"]);
  await clock.advance(2);
  expect(events).toEqual(["new session", "suspended", "expired"]);
  expect(zk.remainingMs()).toBe(0);
  expect(await pendingDelete).toMatchObject({ code: "SESSION_EXPIRED" });
  expect(zk.sessionId).toBe(0n);
});

test("received bytes that answer no request prove nothing: unanswered pings end the session", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  for (let second = 0; second < 8; second++) {
    await clock.advance(1_000);
    // a watch's event: the server is alive, but this does not show when it last received a request
    servers.peer.answer(XID.setWatches);
  }
  expect(events).toEqual(["new session"]);
  await clock.advance(1_000);
  expect(events).toEqual(["new session", "suspended", "expired"]);
  expect(zk.isConnected).toBe(false);
});

test("a session with another number means that the client's own session is over", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  servers.peer.cut();
  await clock.advance(500);
  servers.peer.accept();
  servers.peer.welcome({ id: 8n, timeoutMs: TIMEOUT_MS });
  expect(events).toEqual(["new session", "suspended", "expired", "new session"]);
  expect(zk.sessionId).toBe(8n);
});

test("a session that the server reports as expired is followed by a new one, on a new connection", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  servers.peer.cut();
  await clock.advance(500);
  servers.peer.accept();
  servers.peer.welcome({ id: 0n, timeoutMs: 0 });
  expect(events).toEqual(["new session", "suspended", "expired"]);
  await clock.advance(500);
  servers.peer.accept();
  servers.peer.welcome({ id: 9n, timeoutMs: TIMEOUT_MS });
  expect(zk.sessionId).toBe(9n);
});

test("a session is only resumed on a server that knows all it saw; a new one is made on any server", async () => {
  const { zk, clock, servers } = await connectedFixture();
  const pendingDelete = zk.delete("/a");
  await clock.advance(0);
  servers.peer.answer((servers.peer.sent()[0] as [number, number])[0]);
  await pendingDelete;
  servers.peer.cut();
  await clock.advance(500);
  servers.peer.accept();
  expect(servers.peer.lastSeen()).toBe(1n);
  servers.peer.cut(); // as a store does that is behind, since it was restored from a backup or is empty
  await clock.advance(TIMEOUT_MS);
  servers.peer.accept();
  expect(servers.peer.lastSeen()).toBe(0n);
  servers.peer.welcome({ id: 8n, timeoutMs: TIMEOUT_MS });
  expect(zk.sessionId).toBe(8n);
});

test("each server has two seconds of the session's time for its greeting, then the next one is tried", async () => {
  const { clock, servers } = createFixture();
  const triedServers: string[] = [];
  for (let turn = 0; turn < 3; turn++) {
    triedServers.push(servers.peer.address.host);
    servers.peer.accept();
    await clock.advance(1_999);
    expect(servers.peers).toHaveLength(turn + 1);
    await clock.advance(1);
  }
  expect(triedServers.sort()).toEqual(["a", "b", "c"]);
});

test("a first session that takes too long is reported with the failure of the last attempt", async () => {
  const [clock, servers] = [new FakeClock(), createScriptedServers()];
  const zk = new ZooKeeper({ servers: [{ host: "a", port: 2_181 }], clock, connector: servers.dial });
  const pendingOpen = zk.open({}, 250).catch((error: unknown) => error);
  servers.peer.cut(new Error("it speaks otherwise"));
  await clock.advance(250);
  expect(await pendingOpen).toMatchObject({
    code: "CONNECTION_LOSS",
    message: "ZooKeeper did not answer within 250 ms: it speaks otherwise",
  });
  await zk.close();
});

test("each round of failures is followed by a delay of the retry policy", async () => {
  const rounds: number[] = [];
  const { clock, servers } = createFixture({
    retry(round) {
      rounds.push(round);
      return round * 100;
    },
  });
  for (const rest of [100, 200, 300]) {
    for (let turn = 0; turn < 3; turn++) {
      servers.peer.cut(new Error("refused"));
      if (turn < 2) await clock.advance(0);
    }
    const before = servers.peers.length;
    await clock.advance(rest - 1);
    expect(servers.peers).toHaveLength(before);
    await clock.advance(1);
    expect(servers.peers).toHaveLength(before + 1);
  }
  expect(rounds).toEqual([1, 2, 3]);
});

test("a reply out of order ends the connection, and the requests have an unknown outcome", async () => {
  const { zk, clock, servers, events } = await connectedFixture();
  const pendingDelete = Promise.allSettled([zk.delete("/a"), zk.delete("/b")]);
  await clock.advance(0);
  const [, second] = servers.peer.sent();
  servers.peer.answer((second as [number, number])[0]);
  expect(events).toEqual(["new session", "suspended"]);
  for (const result of await pendingDelete) {
    expect(result).toMatchObject({ reason: { code: "CONNECTION_LOSS", isSent: true } });
  }
});

test("errors name the requested node, but not the id in its name", async () => {
  const { zk, clock, servers } = await connectedFixture({ requestMs: 2_000 });
  const failed = (name: string): Promise<Error> =>
    zk.delete(`/k/_c_${name}-lock-0000000003`).then(
      () => new Error("it was answered"),
      (error: Error) => error,
    );
  const ids = ["ab12cd", "9f0c2a55-8f86-4a0c-9d8d-5f1f3c1c0a11"];
  const lateResults = ids.map(failed);
  await clock.advance(2_000);
  const lostResults = ids.map(failed);
  await clock.advance(0);
  servers.peer.cut();
  const messages = (await Promise.all([...lateResults, ...lostResults])).map(({ message }) => message);
  expect(messages.map((message) => message.replace(/.*: /, ""))).toEqual([
    ...ids.map(() => "no answer in time"),
    ...ids.map(() => "the connection was lost"),
  ]);
  for (const message of messages) expect(message).toContain("delete /k/_c_...-lock-0000000003");
});

test("a sent request is never sent again; an unsent one is sent on the next connection", async () => {
  const { zk, clock, servers } = await connectedFixture();
  const first = zk.delete("/a").catch((error: unknown) => error);
  await clock.advance(0);
  servers.peer.sent();
  servers.peer.cut();
  const second = zk.delete("/b");
  await clock.advance(1_000);
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  await clock.advance(0);
  expect(await first).toMatchObject({ code: "CONNECTION_LOSS", isSent: true });
  const frames = servers.peer.sent();
  expect(frames.map((frame) => frame?.[1])).toEqual([undefined, OP.setWatches2, OP.delete]);
  servers.peer.answer((frames[2] as [number, number])[0]);
  await second;
});

test("a shorter session of the server is the one that counts", async () => {
  const { zk, clock, servers } = createFixture();
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: 3_000 });
  expect(zk.sessionMs).toBe(3_000);
  servers.peer.sent();
  await clock.advance(200);
  expect(servers.peer.sent()).toEqual([PING_FRAME]);
  servers.peer.cut();
  await clock.advance(2_771);
  expect(zk.sessionId).toBe(0n);
});

test("the default policy doubles between its bounds and takes a random share", () => {
  const longestBackoff = exponential(20, 1_000, () => 1);
  expect([1, 2, 3, 6, 7, 100].map(longestBackoff)).toEqual([20, 40, 80, 640, 1_000, 1_000]);
  expect(exponential(20, 1_000, () => 0)(5)).toBe(1);
  for (const [first, last] of [
    [0, 10],
    [10, 5],
    [1, Number.POSITIVE_INFINITY],
    [Number.NaN, 1],
  ] as const) {
    expect(() => exponential(first, last)).toThrow(TypeError);
  }
});

test.each([Number.NaN, -1, Number.POSITIVE_INFINITY, undefined as never])(
  "a policy that returns %s is limited to a second",
  (randomValue) => {
    expect(toBackoffMs(() => randomValue, 1)).toBe(1_000);
    expect(toBackoffMs(() => 0, 1)).toBe(0);
  },
);

test("a server before 3.6 is refused with its version, before any other answer, on the first connection and on later ones", async () => {
  const { zk, servers, opening } = createFixture();
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  await opening;
  expect(servers.peer.sent().slice(1), "asked although there is nothing to watch").toEqual([
    [XID.setWatches, OP.setWatches2],
  ]);
  const first = zk.delete("/first").catch((error: unknown) => error);
  await Promise.resolve();
  servers.peer.answer(XID.setWatches, -6);
  const outdated = { code: "OUTDATED_SERVER", message: expect.stringContaining("older than 3.6") };
  expect(await first).toMatchObject(outdated);
  expect(await zk.delete("/second").catch((error: unknown) => error), "later requests").toMatchObject(outdated);
  expect(servers.peer.isClosed).toBe(true);

  const connection = await connectedFixture();
  connection.servers.peer.cut();
  await connection.clock.advance(1_000);
  connection.servers.peer.accept();
  connection.servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  connection.servers.peer.answer(XID.setWatches, -6);
  await connection.clock.advance(TIMEOUT_MS);
  expect(connection.servers.peers, "it does not go on connecting").toHaveLength(2);
  expect(await connection.zk.delete("/third").catch((error: unknown) => error)).toMatchObject(outdated);
});

test("an opening request is sent again when its connection is lost, but not after its time is over", async () => {
  const [clock, servers] = [new FakeClock(), createScriptedServers()];
  const zk = new ZooKeeper({
    servers: [{ host: "a", port: 2_181 }],
    clock,
    connector: servers.dial,
    random: () => 0.5,
  });
  let prepared = 0;
  const ask = async (): Promise<void> => {
    prepared++;
    await zk.delete("/prepared");
  };
  const pendingOpen = zk.open({}, 5_000, ask).catch((error: unknown) => error);
  for (let times = 1; times <= 3; times++) {
    servers.peer.accept();
    servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
    await clock.advance(1);
    expect(prepared).toBe(times);
    servers.peer.cut();
    await clock.advance(500);
  }
  await clock.advance(5_000);
  expect(await pendingOpen).toMatchObject({
    code: "CONNECTION_LOSS",
    message: expect.stringContaining("within 5000 ms"),
  });
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: TIMEOUT_MS });
  await clock.advance(1_000);
  expect(prepared, "it is over").toBe(3);
  await zk.abandonSession();
});
