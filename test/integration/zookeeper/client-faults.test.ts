// Faults that made other clients unsafe for locks, one test each: see the client's invariants in connection.ts.

import dns from "node:dns";
import type { AddressInfo, Socket } from "node:net";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { TestContext } from "vitest";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { CREATOR_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import type { ZooKeeperOptions } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { ZooKeeperServer } from "../../support/stores/zookeeper.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";

const TIMEOUT_MS = 20_000;
/** A machine that is busy with other things may stand still for a part of it. */
const SESSION_MS = 4_000;
let server: ZooKeeperServer;

beforeAll(async () => {
  server = await startZooKeeper();
}, 60_000);

afterAll(() => server[Symbol.asyncDispose]());

type Cleanup = (error: null, address: unknown, family?: number) => void;

type OnTestFinished = TestContext["onTestFinished"];

interface ObservedClient {
  readonly proxy: TcpProxy;
  readonly zk: ZooKeeper;
  readonly events: string[];
}

async function openProxy(onTestFinished: OnTestFinished): Promise<TcpProxy> {
  const proxy = await tcpProxy(server.address);
  onTestFinished(() => proxy.close());
  return proxy;
}

/** A client behind a proxy, whose faults the test controls. */
async function openBehindProxy(
  onTestFinished: OnTestFinished,
  options: Partial<ZooKeeperOptions> = {},
): Promise<ObservedClient> {
  const proxy = await openProxy(onTestFinished);
  const servers = [proxy.address as { host: string; port: number }];
  const zk = new ZooKeeper({ servers, sessionMs: SESSION_MS, ...options });
  onTestFinished(() => {
    proxy.toTarget.resume();
    proxy.toClient.resume();
    return zk.close();
  });
  const events: string[] = [];
  await zk.open({
    onConnected: (isRenewed) => events.push(isRenewed ? "new session" : "same session"),
    onSuspended: () => events.push("suspended"),
    onExpired: () => events.push("expired"),
  });
  return { proxy, zk, events };
}

function countLosses(events: readonly string[]): number {
  return events.filter((event) => event === "suspended").length;
}

async function openDirect(onTestFinished: OnTestFinished): Promise<ZooKeeper> {
  const zk = new ZooKeeper({ servers: [server.address] });
  onTestFinished(() => zk.close());
  await zk.open();
  return zk;
}

// these wait for sessions to end, side by side
test.concurrent("a stream of events delays no ping to the server", async ({ onTestFinished }) => {
  const { zk, events } = await openBehindProxy(onTestFinished);
  const otherZooKeeper = await openDirect(onTestFinished);
  let pingCount = 0;
  // set beforehand: a request would count as a sign of life and delay the ping
  const paths = Array.from({ length: (1.5 * SESSION_MS) / 100 }, (_, n) => `/busy-${n}`);
  await Promise.all(paths.map((path) => zk.exists(path, () => pingCount++)));
  for (const path of paths) {
    await otherZooKeeper.create(path);
    await delay(100);
  }
  await until(() => pingCount === paths.length, { within: TIMEOUT_MS, what: "each event" });
  expect(events).toEqual(["new session"]);
  expect(zk.remainingMs()).toBeGreaterThan(SESSION_MS / 2);
});

test.concurrent("a silent server is noticed, and the session ends by the client's clock before the server ends it", async ({
  onTestFinished,
}) => {
  const { proxy, zk, events } = await openBehindProxy(onTestFinished);
  const otherZooKeeper = await openDirect(onTestFinished);
  await zk.create("/held", { mode: "ephemeral" });
  let removedAt = 0;
  await otherZooKeeper.exists("/held", () => {
    removedAt = performance.now();
  });
  proxy.toTarget.pause();
  proxy.toClient.pause();
  const endsAt = performance.now() + zk.remainingMs();
  const rejection = zk.exists("/held").catch((error: unknown) => error);
  expect(await rejection).toMatchObject({ code: "CONNECTION_LOSS", isSent: true });
  await until(() => events.includes("expired"), { within: TIMEOUT_MS, what: "the end of the session" });
  expect(zk.remainingMs()).toBe(0);
  await until(() => removedAt > 0, { within: TIMEOUT_MS, what: "its end at the server" });
  expect(removedAt, "the server had it for longer").toBeGreaterThan(endsAt);
  expect(events).toEqual(["new session", "suspended", "expired"]);
});

test.concurrent("a request that waits for a connection fails with its session, and is not sent in the next one", async ({
  onTestFinished,
}) => {
  const { proxy, zk, events } = await openBehindProxy(onTestFinished, { requestMs: 60_000 });
  const otherZooKeeper = await openDirect(onTestFinished);
  proxy.refuseConnections(true);
  proxy.reset();
  await until(() => !zk.isConnected, { within: TIMEOUT_MS, what: "the loss" });
  await expect(zk.create("/waits")).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
  proxy.refuseConnections(false);
  await until(() => zk.isConnected, { within: TIMEOUT_MS, what: "the next session" });
  expect(events).toEqual(["new session", "suspended", "expired", "new session"]);
  expect(await otherZooKeeper.exists("/waits")).toBeNull();
});

test.concurrent("a request has a time limit, connected or not; its late reply is matched to no other request", async ({
  onTestFinished,
}) => {
  const { proxy, zk } = await openBehindProxy(onTestFinished, { requestMs: 2_000, sessionMs: 20_000 });
  proxy.toClient.pause();
  await expect(zk.exists("/")).rejects.toMatchObject({ code: "CONNECTION_LOSS", isSent: true });
  proxy.toClient.resume();
  const stats = await Promise.all([zk.exists("/zookeeper".slice(0, 1)), zk.exists("/nowhere")]);
  expect(stats.map((stat) => stat !== null)).toEqual([true, false]);
});

test.concurrent("a server that accepts connections and stays silent has a time limit, then another is tried", async ({
  onTestFinished,
}) => {
  const held: Socket[] = [];
  const silentServer = createServer((socket) => held.push(socket));
  await new Promise<void>((resolve) => silentServer.listen(0, "127.0.0.1", resolve));
  const { port } = silentServer.address() as AddressInfo;
  const zk = new ZooKeeper({
    // the last server is tried first
    servers: [server.address, { host: "127.0.0.1", port }],
    // two seconds for each
    sessionMs: 8_000,
    random: () => 0.9,
  });
  onTestFinished(() => zk.close());
  await zk.open();
  expect(held).toHaveLength(1);
  for (const socket of held) socket.destroy();
  silentServer.close();
});

test.concurrent("a session expired by the server is reported on reconnect, and another is made", async ({
  onTestFinished,
}) => {
  const { proxy, zk, events } = await openBehindProxy(onTestFinished);
  const first = zk.sessionId;
  // closeSession for it from outside: a second client takes the session over and ends it
  proxy.toTarget.pause();
  proxy.toClient.pause();
  await until(() => events.includes("expired"), { within: TIMEOUT_MS, what: "our own clock" });
  proxy.toTarget.resume();
  proxy.toClient.resume();
  await until(() => events.at(-1) === "new session", { within: TIMEOUT_MS, what: "another session" });
  expect(zk.sessionId).not.toBe(first);
  expect(await zk.exists("/")).not.toBeNull();
});

test("half a frame of one connection is not the beginning of the next", async ({ onTestFinished }) => {
  const { proxy, zk, events } = await openBehindProxy(onTestFinished);
  await zk.create("/long", { data: Buffer.alloc(1_000, "x") });
  for (const bytes of [1, 4, 17, 30, 500]) {
    proxy.toClient.cutAfter(bytes);
    await expect(zk.get("/long")).rejects.toMatchObject({ code: "CONNECTION_LOSS", isSent: true });
    expect((await zk.get("/long")).data).toHaveLength(1_000);
  }
  expect(events).not.toContain("expired");
  await zk.delete("/long");
});

test("bytes received one by one make the same frames", async ({ onTestFinished }) => {
  const { proxy, zk } = await openBehindProxy(onTestFinished);
  proxy.toClient.byteByByte(true);
  await zk.create("/slow", { data: Buffer.alloc(100, "x") });
  expect((await zk.get("/slow")).data).toHaveLength(100);
});

test("after a reconnect no request is sent before authentication", async ({ onTestFinished }) => {
  const { proxy, zk, events } = await openBehindProxy(onTestFinished, {
    auth: [{ scheme: "digest", auth: "ana:secret" }],
    requestMs: 10_000,
  });
  await zk.create("/private", { acl: CREATOR_ALL });
  for (let round = 0; round < 20; round++) {
    proxy.reset();
    await until(() => countLosses(events) > round, { within: TIMEOUT_MS, what: "the loss" });
    await expect(zk.get("/private")).resolves.toBeDefined();
  }
  await zk.delete("/private");
});

test("the host name is resolved again for each connection: servers that have moved are found", async ({
  onTestFinished,
}) => {
  const proxy = await openProxy(onTestFinished);
  const { port } = proxy.address as { port: number };
  let address = "127.0.0.2";
  const lookup = dns.lookup as (...args: unknown[]) => void;
  const spy = vi.spyOn(dns, "lookup").mockImplementation(((
    name: string,
    options: { all?: boolean },
    cleanup: Cleanup,
  ) => {
    if (name !== "zk.example") return lookup(name, options, cleanup);
    process.nextTick(() =>
      options.all === true ? cleanup(null, [{ address, family: 4 }]) : cleanup(null, address, 4),
    );
  }) as unknown as typeof dns.lookup);
  try {
    const zk = new ZooKeeper({
      servers: [{ host: "zk.example", port }],
      sessionMs: 20_000,
      retry(rounds) {
        if (rounds === 2) address = "127.0.0.1";
        return 1;
      },
    });
    onTestFinished(() => zk.close());
    await zk.open();
    expect(spy.mock.calls.filter(([name]) => name === "zk.example")).toHaveLength(3);
  } finally {
    spy.mockRestore();
  }
});

test("closing works at any moment: at once, while connecting, with a dead peer", async ({ onTestFinished }) => {
  const { proxy, zk } = await openBehindProxy(onTestFinished);
  proxy.toTarget.pause();
  proxy.toClient.pause();
  const from = performance.now();
  await zk.close();
  expect(performance.now() - from).toBeLessThan(10_000);
  await expect(zk.exists("/")).rejects.toMatchObject({ code: "CONNECTION_LOSS", isSent: false });

  const zkClient = new ZooKeeper({ servers: [server.address] });
  const pendingOpen = zkClient.open().catch((error: unknown) => error);
  await zkClient.close();
  expect(await pendingOpen).toMatchObject({ code: "CONNECTION_LOSS" });
});

test("a server that was stopped and continues finds the session, with its nodes", async ({ onTestFinished }) => {
  const { zk, events } = await openBehindProxy(onTestFinished, { sessionMs: 40_000 });
  await zk.create("/stays", { mode: "ephemeral" });
  await server.stop("SIGKILL");
  await until(() => countLosses(events) === 1, { within: TIMEOUT_MS, what: "the loss" });
  await server.start();
  await until(() => zk.isConnected, { within: TIMEOUT_MS, what: "the server to be found" });
  expect(events).toEqual(["new session", "suspended", "same session"]);
  expect((await zk.exists("/stays"))?.ephemeralOwner).toBe(zk.sessionId);
}, 60_000);

test.for([
  ["a four-letter answer", "imok"],
  ["a web server's", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"],
  ["an empty frame", "\0\0\0\0"],
  ["a greeting cut short", "\0\0\0\u0008\0\0\0\0\0\0\u0027\u0010"],
  ["a frame without end", "\u007f\u007f\u007f\u007f"],
] as const)(
  "a server that speaks another protocol (%s) is left for another, and named where there is none",
  async ([, text], { onTestFinished }) => {
    let connectionCount = 0;
    const foreignServer = createServer((socket) => {
      connectionCount++;
      socket.on("error", () => socket.destroy());
      socket.write(text);
    });
    await new Promise<void>((resolve) => foreignServer.listen(0, "127.0.0.1", resolve));
    const { port } = foreignServer.address() as AddressInfo;
    try {
      const foreignAddress = { host: "127.0.0.1", port };
      // the last server is tried first
      const zk = new ZooKeeper({ servers: [server.address, foreignAddress], sessionMs: 20_000, random: () => 0.9 });
      onTestFinished(() => zk.close());
      await zk.open();
      expect(await zk.exists("/")).not.toBeNull();
      expect(connectionCount).toBe(1);
      const zkClient = new ZooKeeper({ servers: [foreignAddress], sessionMs: 20_000 });
      const pendingOpen = expect(zkClient.open()).rejects.toMatchObject({ code: "CONNECTION_LOSS" });
      const isNamed = (): Promise<boolean> =>
        zkClient.waitConnected().then(
          () => false,
          ({ message }: Error) => /no server is connected: ./.test(message),
        );
      await until(isNamed, { within: TIMEOUT_MS, what: "what is wrong with it" });
      await zkClient.close();
      await pendingOpen;
    } finally {
      foreignServer.close();
    }
  },
);
