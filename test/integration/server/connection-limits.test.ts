// Each limit on connections and on their input, reached once. Other clients are not disturbed.

import type { AddressInfo, Socket } from "node:net";
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { PROTOCOL_LIMITS } from "../../../src/protocol/handshake.ts";
import type { ServerLimits } from "../../../src/server/limits.ts";
import { DEFAULT_LIMITS, resolveLimits } from "../../../src/server/limits.ts";
import { attachPlainSocket } from "../../../src/server/net/socket-transport.ts";
import type { LockService } from "../../../src/server/service.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FrameConnection } from "../../support/frame-connection.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, makeClaim, onCleanup, openClient, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const TCP_ADDRESS = "holdfast://127.0.0.1:0";

async function startLimitedServer(limits: Partial<ServerLimits>): Promise<{ readonly address: string }> {
  const it = await startServer({ limits, listen: TCP_ADDRESS });
  return { address: it.addresses[0] as string };
}

async function dialFrom(address: string, from = "127.0.0.1"): Promise<RawClient> {
  const rawClient = await RawClient.connect({ ...parseRawAddress(address), localAddress: from } as never);
  onCleanup(() => rawClient.end());
  return rawClient;
}

async function openFrom(address: string, from?: string): Promise<RawClient> {
  const rawClient = await dialFrom(address, from);
  await rawClient.sendHello();
  return rawClient;
}

/** The error that refuses a new connection, or null. */
async function refusalFrom(address: string, from?: string): Promise<string | null> {
  const rawClient = await dialFrom(address, from);
  await rawClient.sendHello().catch(() => undefined);
  return rawClient.refusal;
}

test("connections: one too many is refused with LIMIT, the others continue, and there is room again when one ends", async () => {
  const { address } = await startLimitedServer({ connections: 3 });
  const clients = [await openFrom(address), await openFrom(address), await openFrom(address)];
  expect(await refusalFrom(address)).toBe("LIMIT");
  for (const rawClient of clients) expect(await rawClient.call("ping")).toEqual([]);
  clients[0]?.end();
  await until(async () => (await refusalFrom(address)) === null, { within: 2_000, what: "room" });
});

test("connections: on a full Unix socket the client gets the reason, each time", async () => {
  const it = await startServer({ limits: { connections: 1 } });
  const address = it.addresses[0] as string;
  await openFrom(address);
  // it tries again and again until then
  const open = (): Promise<unknown> => openClient(address, { connectTimeout: 1_000 });
  for (let index = 0; index < 5; index++) await expect(open()).rejects.toThrow("at most 1 connections");
});

test("connectionsPerAddress: one address does not use up the room of the others", async () => {
  const { address } = await startLimitedServer({ connectionsPerAddress: 2 });
  await openFrom(address, "127.0.0.2");
  await openFrom(address, "127.0.0.2");
  expect(await refusalFrom(address, "127.0.0.2")).toBe("LIMIT");
  expect(await refusalFrom(address, "127.0.0.3")).toBe(null);
});

test("a client without a complete hello in five seconds is refused, whether it is silent or sends a byte at a time", async () => {
  const clock = new FakeClock();
  const it = await startServer({ listen: TCP_ADDRESS, clock });
  const address = it.addresses[0] as string;
  const [silentClient, slowClient] = [await dialFrom(address), await dialFrom(address)];
  for (let second = 0; second < 5; second++) {
    slowClient.write(" ");
    await clock.advance(990);
  }
  expect([silentClient.isClosed, slowClient.isClosed]).toEqual([false, false]);
  await clock.advance(60);
  await silentClient.waitUntilClosed();
  await slowClient.waitUntilClosed();
  expect([silentClient.refusal, slowClient.refusal]).toEqual(["PROTOCOL", "PROTOCOL"]);
});

test.each([
  ["length", "x".repeat(4_097)],
  ["length, with its end", `${"x".repeat(4_097)}\n`],
  ["nesting", `{"hello":${"[".repeat(16)}\n`],
])("%s: a first line beyond the bound ends the connection", async (_, text) => {
  const { address } = await startLimitedServer({});
  const rawClient = await dialFrom(address);
  rawClient.write(text);
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("PROTOCOL");
});

test("lineBytes: a longer line ends the connection before the line ends; a line of exactly this length does not", async () => {
  const { address } = await startLimitedServer({});
  const rawClient = await openFrom(address);
  const fittingLine = `["${rawClient.runId}",["ping",1,"`;
  const end = '"]]\n';
  rawClient.write(`${fittingLine}${"x".repeat(DEFAULT_LIMITS.lineBytes - fittingLine.length - end.length - 1)}${end}`);
  expect(await rawClient.call("ping")).toEqual([]);
  rawClient.write(`${fittingLine}${"x".repeat(DEFAULT_LIMITS.lineBytes - fittingLine.length)}`);
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("PROTOCOL");
});

test("nesting: 100,000 levels in a later line do no harm, in a field that is read or in one that is not", async () => {
  const { address } = await startLimitedServer({});
  const otherRawClient = await openFrom(address);
  const rawClient = await openFrom(address);
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  rawClient.send(`["ping",1,${deep}]`);
  expect(await rawClient.call("ping")).toEqual([]);
  rawClient.send(`["claim",1,${deep}]`);
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("PROTOCOL");
  expect(await otherRawClient.call("ping")).toEqual([]);
});

test("frames: a line with too many frames ends the connection, a full one does not", async () => {
  const { address } = await startLimitedServer({});
  const rawClient = await openFrom(address);
  const pings = Array.from({ length: PROTOCOL_LIMITS.framesPerLine }, (_, n) => `["ping",${n + 100}]`);
  rawClient.send(...pings);
  expect(await rawClient.call("ping")).toEqual([]);
  rawClient.send(...pings, '["ping",1]');
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("LIMIT");
});

test.each(["renew", "release", "detach"])(
  "batch: a %s with too many items is refused, and the connection continues",
  async (verb) => {
    const { address } = await startLimitedServer({});
    const rawClient = await openFrom(address);
    const { itemsPerFrame } = PROTOCOL_LIMITS;
    const ids = Array.from({ length: itemsPerFrame + 1 }, randomId);
    await expect(rawClient.call(verb, ids)).rejects.toThrow("LIMIT");
    expect(await rawClient.call(verb, ids.slice(1))).toHaveLength(itemsPerFrame);
  },
);

test("batch: the client stays within what the server says that a frame may have", async () => {
  const { address } = await startLimitedServer({});
  const { driver } = await openClient(address);
  const claims = Array.from({ length: PROTOCOL_LIMITS.itemsPerFrame + 500 }, (_, n) => makeClaim(`k${n}`));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  expect((await driver.renew(claims)).every((answer) => answer?.state === "held")).toBe(true);
  expect((await driver.release(toReleases(...claims))).every((wasPresent) => wasPresent)).toBe(true);
});

test("page: no answer to list is longer than a page", async () => {
  const { address } = await startLimitedServer({});
  const rawClient = await openFrom(address);
  rawClient.send(...Array.from({ length: 1_001 }, (_, n) => `["claim",${n + 100},"${randomId()}",["k${n}"],30000]`));
  const [views, more] = await rawClient.call("list", { prefix: "" }, 5_000);
  expect([(views as unknown[]).length, more]).toEqual([1_000, true]);
  // the client asks for the next page
  const { driver } = await openClient(address);
  expect((await driver.list({ prefix: "" }, { max: 5_000 })).items).toHaveLength(1_001);
});

test("listMs: other clients are served between the lists of one client, however many it asks for", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const [busyClient, other] = [await openFrom(address), await openFrom(address)];
  for (let part = 0; part < 5; part++) {
    busyClient.send(
      ...Array.from({ length: 2_000 }, (_, n) => `["claim",${n + 9_000},"${randomId()}",["k${part}/${n}"],30000]`),
    );
    await busyClient.call("ping");
  }
  expect(it.stats().claims).toBe(10_000);
  busyClient.unexpectedLines.length = 0;
  // a prefix without matches and an invalid cursor: the server searches everything for a small answer
  for (let line = 0; line < 50; line++) {
    busyClient.send(
      ...Array.from({ length: 8 }, (_, n) => `["list",${line * 8 + n + 100_000},{"prefix":"none"},10,"aaaaaaaaaa"]`),
    );
  }
  // no time is measured, since a busy machine would stretch it: if a list were made in one go, the first ping, which came after
  // the lists, would find one answered
  let meanwhile = 0;
  while (!busyClient.unexpectedLines.some(([kind]) => kind === "ok")) {
    await other.call("ping");
    meanwhile++;
  }
  expect(meanwhile).toBeGreaterThan(3);
  expect((await other.call("list", { prefix: "k3/" }, 1_000)).length).toBe(2);
});

test("a client that does not read is disconnected when more than 4 MiB wait for it; others are not disturbed", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const [nonReader, other] = [await openFrom(address), await openFrom(address)];
  const key = "k".repeat(400);
  for (let part = 0; part < 4; part++) {
    other.send(
      ...Array.from({ length: 250 }, (_, n) => `["claim",${n + 100},"${randomId()}",["${key}${part}/${n}"],30000]`),
    );
  }
  await other.call("ping");
  // each answer has half a megabyte
  nonReader.socket.pause();
  nonReader.send(...Array.from({ length: 16 }, (_, n) => `["list",${n},{"prefix":""},1000]`));
  const pings: number[] = [];
  const isAlone = async (): Promise<boolean> => {
    const startedAt = performance.now();
    const info = (await other.call("info", "")) as unknown as { readonly load: { readonly connections: number } };
    pings.push(performance.now() - startedAt);
    return info.load.connections === 1;
  };
  await until(isAlone, { within: 15_000, what: "the end of the deaf one" });
  expect(Math.max(...pings)).toBeLessThan(5_000);
  nonReader.socket.resume();
  await nonReader.waitUntilClosed();
  expect(nonReader.refusal).toBe("SLOW");
});

test("a network client that reads nothing of what waits for it is disconnected in time; one that reads again is not, nor one of this machine", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const { service } = harness as { readonly service: LockService };
  const label = "x".repeat(256);
  const claims = new FrameConnection(harness).hello();
  claims.send(...Array.from({ length: 700 }, (_, n) => ["claim", n, randomId(), [`k${n}`], 30_000, { label }]));
  /** A client that has read nothing since more waits for it than the server lets wait. */
  const openSlow = async (isLocal: boolean, unreadTimeoutMs: number): Promise<RawClient> => {
    let accepted: Socket | null = null;
    const listener = createServer((socket) => {
      accepted = socket;
      attachPlainSocket(socket, service, isLocal, unreadTimeoutMs);
    });
    await new Promise<void>((resolve) => {
      listener.listen(0, "127.0.0.1", resolve);
    });
    onCleanup(() => void listener.close());
    const client = await openFrom(`holdfast://127.0.0.1:${(listener.address() as AddressInfo).port}`);
    const socket = accepted as unknown as Socket;
    client.socket.pause();
    for (let n = 0; !socket.isPaused(); n++) {
      const sentBefore = socket.bytesWritten;
      // each answer has 250 KB; the socket buffers of both sides fill up first
      client.send(`["list",${n + 5_000},{"prefix":""},1000]`);
      await until(() => socket.bytesWritten > sentBefore, { within: 10_000, what: "the answer" });
    }
    return client;
  };
  const stopped = await openSlow(true, 100);
  const slowClient = await openSlow(false, 20_000);
  slowClient.socket.resume();
  const nonReader = await openSlow(false, 100);
  await until(() => service.connectionLimiter.open === 3, { within: 20_000, what: "the end of the deaf one" });
  nonReader.socket.resume();
  await nonReader.waitUntilClosed();
  expect(nonReader.refusal).toBe("SLOW");
  expect(await slowClient.call("ping")).toEqual([]);
  stopped.socket.resume();
  expect(await stopped.call("ping")).toEqual([]);
});

test("every limit has a default, and a wrong value is reported together with all others", () => {
  expect(resolveLimits({}, 2 ** 40)).toEqual(DEFAULT_LIMITS);
  // on a small heap the default for claims follows the heap, unless the limit is set
  expect(resolveLimits({}, 64 * 1_048_576)).toEqual({ ...DEFAULT_LIMITS, claims: 10_922 });
  expect(resolveLimits({ claims: 20_000 }, 64 * 1_048_576).claims).toBe(20_000);
  const invalidLimits = { connections: 0, ttlMs: 1.5, tokens: 5, claim: 3, waitersPerKey: "many" } as never;
  expect(() => resolveLimits(invalidLimits)).toThrow(TypeError);
  for (const name of ["connections", "ttlMs", "tokens", "claim", "waitersPerKey"]) {
    expect(() => resolveLimits(invalidLimits)).toThrow(`limits.${name} `);
  }
  expect(() => resolveLimits({ waiters: 5 } as never)).toThrow(
    "limits.waiters is not a limit; the limits are connections, connectionsPerAddress, failuresPerMinute, lineBytes, ttlMs, claims, claimsPerAccount, waitersPerKey",
  );
});
