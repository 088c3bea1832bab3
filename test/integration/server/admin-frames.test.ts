// The frames of the operator tools, through real servers: live and past events, and the server's own status.

import { expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import type { AdminConnection, ServerEventListener } from "../../../src/drivers/server/admin-connection.ts";
import { openAdminConnection } from "../../../src/drivers/server/admin-connection.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { ServerEvent } from "../../../src/protocol/admin-frames.ts";
import { PACKAGE_VERSION } from "../../../src/protocol/handshake.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { openWatches, parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import {
  cleanUpAfterEach,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** The operator tools of the server at an address. */
async function openAdmin(address: string, credential?: string): Promise<AdminConnection> {
  const [, host = "", port = ""] = /^holdfast:\/\/(.*):(\d+)$/.exec(address) ?? [];
  const endpoint = address.startsWith("holdfast+unix:")
    ? { path: address.slice("holdfast+unix:".length) }
    : { host, port: Number(port) };
  const driver = lockServer({ ...endpoint, ...(credential !== undefined && { credential }) });
  onCleanup(() => driver.close());
  const link = (await openAdminConnection(driver)) as AdminConnection;
  onCleanup(() => link.close());
  return link;
}

/** A watch that records its events. */
function startWatch(
  link: AdminConnection,
  prefix: string,
): { readonly events: ServerEvent[]; readonly notices: string[] } {
  const events: ServerEvent[] = [];
  const states: string[] = [];
  const serverEventListener: ServerEventListener = {
    onEvents(batch, gap) {
      events.push(...batch);
      if (gap) states.push("gap");
    },
    onConnected: (_, restarted) => states.push(restarted ? "restarted" : "up"),
    onDisconnected: () => states.push("down"),
    onRefused: ({ message }) => states.push(message),
  };
  link.watch(prefix, serverEventListener);
  return { events, notices: states };
}

async function openRawClient(address: string, helloFields: Readonly<Record<string, unknown>> = {}): Promise<RawClient> {
  const rawClient = await RawClient.open(parseRawAddress(address), helloFields);
  onCleanup(() => rawClient.end());
  return rawClient;
}

test("history returns the last events of a key, oldest first, without ids", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address);
  const [claimA, claimB] = [makeClaim("k", { label: "ana" }), makeClaim("k", { label: "bob" })];
  const { token } = expectHeld(await driver.claim(claimA));
  await driver.claim(claimB);
  await driver.revoke?.([{ key: "k", token, now: false, reason: "stuck" }]);
  await driver.release(toReleases(claimA, claimB));
  const link = await openAdmin(address);
  const events = await link.history("k", 10);
  expect(events.map(({ kind, label }) => `${kind} ${label}`)).toEqual([
    "granted ana",
    "waiting bob",
    "revoked ana",
    "released ana",
    "granted bob",
    "released bob",
  ]);
  expect(events[2]).toMatchObject({ token, operator: "", reason: "stuck", keys: ["k"], account: "" });
  expect(await link.history("k", 2)).toEqual(events.slice(4));
  expect(await link.history("other", 10)).toEqual([]);
  for (const { id } of [claimA, claimB]) expect(JSON.stringify(events, (_, value) => String(value))).not.toContain(id);
});

test("a watch reports the events below its prefix, and continues after a restart of the server", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const { driver, pushes } = await openClient(address);
  const { events, notices: states } = startWatch(await openAdmin(address), "a/");
  await until(() => states.length > 0, { within: 2_000, what: "the watch" });
  const [ownClaim, other] = [makeClaim("a/1"), makeClaim("b/1")];
  await driver.claim(other);
  await driver.claim(ownClaim);
  await until(() => events.length > 0, { within: 2_000, what: "the first event" });
  expect(events).toMatchObject([{ kind: "granted", keys: ["a/1"] }]);
  await it.close();
  await until(() => states.includes("down"), { within: 2_000, what: "the end of the server" });
  await startServer({ in: it.dir, listen: `holdfast+unix:${it.path}` });
  await until(() => states.includes("restarted"), { within: 5_000, what: "the server's return" });
  // the client has its own connection and backoff
  await until(() => pushes.all.some(({ id }) => id === null), { within: 5_000, what: "the client's return" });
  await driver.release(toReleases(ownClaim, other));
  await until(() => events.some(({ kind }) => kind === "released"), { within: 2_000, what: "the release" });
  expect(events.map(({ keys }) => keys)).not.toContainEqual(["b/1"]);
  expect(states).toEqual(["up", "down", "restarted"]);
});

test("no frame shows a credential what it may not inspect", async () => {
  const [ana, ben] = [testAccount("ana", "a/"), testAccount("ben", "b/", ["acquire"])];
  const it = await startServer({ access: createTestAccess(ana, ben), listen: "holdfast://127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address, { credential: ben.credential });
  const first = await openAdmin(address, ana.credential);
  const { events, notices } = startWatch(first, "");
  await until(() => notices.length > 0, { within: 2_000, what: "the watch" });
  await driver.claim(makeClaim("b/1"));
  const ownClient = await openClient(address, { credential: ana.credential });
  await ownClient.driver.claim(makeClaim("a/1"));
  await until(() => events.length > 0, { within: 2_000, what: "the event of its own" });
  expect(events).toMatchObject([{ keys: ["a/1"], account: "ana" }]);
  await expect(first.history("b/1", 10)).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  const second = await openAdmin(address, ben.credential);
  await expect(second.history("b/1", 10)).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(await first.info("a/")).toMatchObject({ account: "ana", rights: ["acquire", "inspect", "revoke", "admin"] });
  expect(await first.info("b/")).toMatchObject({ account: "ana", rights: [] });
  // the server's load is shown only to a credential that may inspect every key
  expect(await first.info("")).not.toHaveProperty("load");
});

test("a server reports its version and its load", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address);
  await driver.claim(makeClaim("k"));
  await driver.claim(makeClaim("k"));
  const before = Date.now();
  const info = await (await openAdmin(address)).info("k");
  expect(info).toMatchObject({
    version: PACKAGE_VERSION,
    protocol: 1,
    runId: it.runId,
    recoveryRemainingMs: 0,
    reason: "",
    account: "",
    rights: ["acquire", "inspect", "revoke", "admin"],
    load: { connections: 2, sessions: 2, held: 1, waiting: 1 },
  });
  expect(info.wallMs).toBeGreaterThanOrEqual(before - 1);
  expect(info.wallMs).toBeLessThanOrEqual(Date.now() + 1);
});

test("a driver for a store other than a Holdfast server offers no tools", async () => {
  expect(await openAdminConnection(memory())).toBeNull();
});

test("malformed tool frames end the connection; too many watches only fail their call", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const malformedFrames = [
    '["history",1,7,1]',
    '["history",1,"k",-1]',
    '["watch",1]',
    '["watch",1,"",-1]',
    '["info",1,7]',
  ];
  for (const frame of [...malformedFrames, '["unwatch",1,"x"]']) {
    const rawClient = await openRawClient(address);
    rawClient.send(frame);
    await rawClient.waitUntilClosed();
    expect(rawClient.refusal).toBe("PROTOCOL");
  }
  const rawClient = await openRawClient(address);
  for (let watch = 0; watch < 16; watch++) await rawClient.call("watch", "");
  await expect(rawClient.call("watch", "")).rejects.toThrow("LIMIT: at most 16 watches on a connection");
  expect([
    await rawClient.call("unwatch", 3),
    await rawClient.call("unwatch", 3),
    await rawClient.call("watch", ""),
  ]).toEqual([1, 0, 0]);
});

test("one account, on any port and over any number of connections, leaves room for others", async () => {
  const [accountA, accountB] = [testAccount("a", "a/"), testAccount("b", "b/")];
  const it = await startServer({ access: createTestAccess(accountA, accountB), http: "127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const openAs = ({ credential }: typeof accountA) => openRawClient(address, { credential });
  const stream = ({ credential }: typeof accountA, signal: AbortSignal) =>
    fetch(`${it.httpAddress}/events`, { headers: { authorization: `Bearer ${credential}` }, signal });
  const reading = new AbortController();
  onCleanup(() => reading.abort());
  expect((await stream(accountA, reading.signal)).status).toBe(200);
  const [first] = await openWatches(parseRawAddress(address), 249, { credential: accountA.credential });
  const message = "at most 250 event subscribers of one account";
  await expect((await openAs(accountA)).call("watch", "")).rejects.toThrow(`LIMIT: ${message}`);
  const refusal = await stream(accountA, reading.signal);
  expect(refusal.status).toBe(429);
  expect(await refusal.json()).toMatchObject({ code: "LIMIT", reason: "full", detail: message });
  const otherRawClient = await openAs(accountB);
  for (let watch = 0; watch < 3; watch++) await otherRawClient.call("watch", "");
  // when one subscriber leaves there is room again
  await first?.call("unwatch", 1);
  expect((await stream(accountA, reading.signal)).status).toBe(200);
});

test("the server stops following events for a watcher that has disconnected", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const rawClient = await openRawClient(address);
  await rawClient.call("watch", "");
  const { driver } = await openClient(address);
  await driver.claim(makeClaim("k", { id: randomId() }));
  rawClient.end();
  const link = await openAdmin(address);
  await until(async () => (await link.info("")).load?.connections === 2, { within: 2_000, what: "its end" });
  await driver.claim(makeClaim("other"));
  expect(await link.history("other", 1)).toHaveLength(1);
});

test("a request for the histories of thousands of keys is answered in part, and other clients are served meanwhile", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const [busyClient, other] = [await openRawClient(address), await openRawClient(address)];
  // each request searches all remembered events
  for (let n = 0; n < 1_000; n++) busyClient.send(`["claim",${n},"${randomId()}",["k${n}"],30000]`);
  const frameCount = 5_000;
  busyClient.send(...Array.from({ length: frameCount }, (_, n) => `["history",${n + 10_000},"none",10]`));
  const [, token] = await other.call("claim", randomId(), ["mine"], 30_000);
  expect(token).toBeDefined();
  expect(await other.call("history", "mine", 10)).toHaveLength(1);
  const answers = () => busyClient.unexpectedLines.filter(([, n]) => (n as number) >= 10_000);
  await until(() => answers().length === frameCount, { within: 20_000, what: "all answers" });
  const refusedCount = answers().filter(([kind, , code]) => kind === "error" && code === "LIMIT").length;
  expect(refusedCount).toBeGreaterThan(frameCount / 2);
  // the delayed calls are answered, and the connection continues
  const answeredCount = answers().filter(([kind]) => kind === "ok").length;
  expect(answeredCount).toBe(frameCount - refusedCount);
  expect(answeredCount).toBeGreaterThanOrEqual(16);
  expect(await busyClient.call("history", "k1", 10)).toHaveLength(1);
});
