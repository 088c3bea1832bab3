// Each limit on connections and on their input, reached once. Other clients are not disturbed.

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ServerLimits } from "../../../src/server/limits.ts";
import { DEFAULT_LIMITS, resolveLimits } from "../../../src/server/limits.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, makeClaim, onCleanup, openClient, startServer } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

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
  const open = (): Promise<unknown> => openClient(address, { connectTimeoutMs: 1_000 });
  for (let index = 0; index < 5; index++) await expect(open()).rejects.toThrow("at most 1 connections");
});

test("connectionsPerAddress: one address does not use up the room of the others", async () => {
  const { address } = await startLimitedServer({ connectionsPerAddress: 2 });
  await openFrom(address, "127.0.0.2");
  await openFrom(address, "127.0.0.2");
  expect(await refusalFrom(address, "127.0.0.2")).toBe("LIMIT");
  expect(await refusalFrom(address, "127.0.0.3")).toBe(null);
});

test("helloMs: a client without a complete hello in this time is refused, whether it is silent or sends a byte at a time", async () => {
  const { address } = await startLimitedServer({ helloMs: 200 });
  const [silentClient, slowClient] = [await dialFrom(address), await dialFrom(address)];
  const startedAt = performance.now();
  const trickle = setInterval(() => slowClient.write(" "), 20);
  onCleanup(() => clearInterval(trickle));
  await silentClient.waitUntilClosed();
  await slowClient.waitUntilClosed();
  // the default is five seconds
  expect(performance.now() - startedAt).toBeLessThan(4_900);
  expect([silentClient.refusal, slowClient.refusal]).toEqual(["PROTOCOL", "PROTOCOL"]);
});

test.each([
  ["helloBytes", { helloBytes: 1_024 }, (rawClient: RawClient) => rawClient.write("x".repeat(1_025))],
  [
    "helloBytes, with its end",
    { helloBytes: 1_024 },
    (rawClient: RawClient) => rawClient.write(`${"x".repeat(1_025)}\n`),
  ],
  ["depth", { depth: 8 }, (rawClient: RawClient) => rawClient.write(`{"hello":${"[".repeat(8)}\n`)],
] as const)("%s: a first line beyond the limit ends the connection", async (_, limits, message) => {
  const { address } = await startLimitedServer(limits);
  const rawClient = await dialFrom(address);
  message(rawClient);
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
  const { address } = await startLimitedServer({ framesPerLine: 6_000 });
  const rawClient = await openFrom(address);
  rawClient.send(...Array.from({ length: 6_000 }, (_, n) => `["ping",${n + 100}]`));
  expect(await rawClient.call("ping")).toEqual([]);
  rawClient.send(...Array.from({ length: 6_001 }, (_, n) => `["ping",${n + 10_000}]`));
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("LIMIT");
});

test.each(["renew", "release", "detach"])(
  "batch: a %s with too many items is refused, and the connection continues",
  async (verb) => {
    const { address } = await startLimitedServer({ itemsPerFrame: 2_000 });
    const rawClient = await openFrom(address);
    const ids = Array.from({ length: 2_001 }, randomId);
    await expect(rawClient.call(verb, ids)).rejects.toThrow("LIMIT");
    expect(await rawClient.call(verb, ids.slice(1))).toHaveLength(2_000);
  },
);

test("batch: the client stays within the smallest limit that a server can set", async () => {
  const { address } = await startLimitedServer({ itemsPerFrame: 2_000, claimsPerSession: 5_000 });
  const { driver } = await openClient(address);
  const claims = Array.from({ length: 4_500 }, (_, n) => makeClaim(`k${n}`));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  expect((await driver.renew(claims)).every((answer) => answer?.state === "held")).toBe(true);
  expect((await driver.release(toReleases(...claims))).every((wasPresent) => wasPresent)).toBe(true);
});

test("revocations and lists in one line are bounded by failing the calls beyond the limit", async () => {
  const { address } = await startLimitedServer({ revocations: 2, concurrentLists: 2 });
  const rawClient = await openFrom(address);
  await expect(
    rawClient.call("revoke", [
      ["a", "1", false],
      ["b", "1", false],
      ["c", "1", false],
    ]),
  ).rejects.toThrow("LIMIT");
  const answers = ["1", "2", "3"].map((n) => `["list",${n}000,{"prefix":""},1]`);
  rawClient.send(...answers);
  const { driver } = await openClient(address);
  const results = await Promise.allSettled([
    driver.list({ prefix: "" }, { max: 1 }),
    driver.list({ prefix: "" }, { max: 1 }),
    driver.list({ prefix: "" }, { max: 1 }),
  ]);
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
});

test("page: no answer to list is longer", async () => {
  const { address } = await startLimitedServer({ pageSize: 2 });
  const rawClient = await openFrom(address);
  for (const key of ["a", "b", "c"]) await rawClient.claim(randomId(), key);
  const [views, more] = await rawClient.call("list", { prefix: "" }, 1_000);
  expect([(views as unknown[]).length, more]).toEqual([2, true]);
  // the client asks for the next page
  const { driver } = await openClient(address);
  expect((await driver.list({ prefix: "" }, { max: 10 })).items).toHaveLength(3);
});

test("listMs: other clients are served between the lists of one client, however many it asks for", async () => {
  const it = await startServer({ limits: { concurrentLists: 8 } });
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

test("unreadBytes: a client that does not read is disconnected when this much waits for it; others are not disturbed", async () => {
  const it = await startServer({ limits: { slowConsumerBytes: 65_536 } });
  const address = it.addresses[0] as string;
  const [nonReader, other] = [await openFrom(address), await openFrom(address)];
  const label = "x".repeat(256);
  other.send(
    ...Array.from(
      { length: 700 },
      (_, n) => `["claim",${n + 100},"${randomId()}",["k${n}"],30000,{"label":"${label}"}]`,
    ),
  );
  await other.call("ping");
  // each answer has 250 KB; the socket buffers fill up first
  nonReader.socket.pause();
  for (let index = 0; index < 40; index++) nonReader.send(`["list",${index},{"prefix":""},1000]`);
  const pings: number[] = [];
  for (let index = 0; index < 20; index++) {
    const startedAt = performance.now();
    await other.call("ping");
    pings.push(performance.now() - startedAt);
  }
  expect(Math.max(...pings)).toBeLessThan(5_000);
  nonReader.socket.resume();
  await nonReader.waitUntilClosed();
});

test("unreadMs: a client that asks and never reads is disconnected when it took nothing for this long; one that reads again is not", {
  timeout: 60_000,
}, async () => {
  // longer than a busy machine needs to make the answers
  const it = await startServer({
    limits: { slowConsumerMs: 5_000, slowConsumerBytes: 1_073_741_824 },
    listen: TCP_ADDRESS,
  });
  const address = it.addresses[0] as string;
  const [nonReader, slowClient, other] = [await openFrom(address), await openFrom(address), await openFrom(address)];
  const label = "x".repeat(256);
  other.send(
    ...Array.from(
      { length: 700 },
      (_, n) => `["claim",${n + 100},"${randomId()}",["k${n}"],30000,{"label":"${label}"}]`,
    ),
  );
  await other.call("ping");
  const connections = async (): Promise<number> => {
    const [info] = [(await other.call("info", "")) as unknown as { readonly load: { readonly connections: number } }];
    return info.load.connections;
  };
  expect(await connections()).toBe(3);
  // each answer has 250 KB; the socket buffers of both sides fill up first
  const startedAt = performance.now();
  for (const client of [nonReader, slowClient]) {
    client.socket.pause();
    for (let index = 0; index < 56; index++) client.send(`["list",${index + 5_000},{"prefix":""},1000]`);
  }
  await other.call("ping");
  // it reads what has arrived, then keeps reading
  slowClient.socket.resume();
  expect(await slowClient.call("ping")).toEqual([]);
  await until(async () => (await connections()) === 2, { within: 20_000, what: "the end of the deaf one" });
  expect(performance.now() - startedAt).toBeGreaterThan(4_990);
  expect(await slowClient.call("ping")).toEqual([]);
});

test("unreadMs: on a Unix socket a client that does not read is not disconnected, since its process may be stopped", async () => {
  const it = await startServer({ limits: { slowConsumerMs: 100, slowConsumerBytes: 1_073_741_824 } });
  const address = it.addresses[0] as string;
  const stopped = await openFrom(address);
  const label = "x".repeat(256);
  stopped.send(
    ...Array.from(
      { length: 700 },
      (_, n) => `["claim",${n + 100},"${randomId()}",["k${n}"],30000,{"label":"${label}"}]`,
    ),
  );
  await stopped.call("ping");
  stopped.socket.pause();
  for (let index = 0; index < 40; index++) stopped.send(`["list",${index + 5_000},{"prefix":""},1000]`);
  await delay(700);
  stopped.socket.resume();
  expect(await stopped.call("ping")).toEqual([]);
});

test("subscribers: the limits by connection and in all hold, and there is room again when one leaves", async () => {
  const { address } = await startLimitedServer({ subscribersPerConnection: 2, subscribers: 3 });
  const [first, second] = [await openFrom(address), await openFrom(address)];
  await first.call("watch", "");
  await first.call("watch", "");
  await expect(first.call("watch", "")).rejects.toThrow("LIMIT");
  await second.call("watch", "");
  await expect(second.call("watch", "")).rejects.toThrow("LIMIT");
  first.end();
  await until(
    () =>
      second.call("watch", "").then(
        () => true,
        () => false,
      ),
    { within: 2_000, what: "room" },
  );
});

test("every limit has a default, and a wrong value is reported together with all others", () => {
  expect(resolveLimits({}, 2 ** 40)).toEqual(DEFAULT_LIMITS);
  // on a small heap the default for claims follows the heap, unless the limit is set
  expect(resolveLimits({}, 64 * 1_048_576)).toEqual({ ...DEFAULT_LIMITS, claims: 10_922 });
  expect(resolveLimits({ claims: 20_000 }, 64 * 1_048_576).claims).toBe(20_000);
  const invalidLimits = { connections: 0, ttlMs: 1.5, tokens: 5, claim: 3, waiters: "many" } as never;
  expect(() => resolveLimits(invalidLimits)).toThrow(TypeError);
  for (const name of ["connections", "ttlMs", "tokens", "claim", "waiters"]) {
    expect(() => resolveLimits(invalidLimits)).toThrow(`limits.${name} `);
  }
});
