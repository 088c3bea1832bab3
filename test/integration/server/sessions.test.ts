import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { openKeepSessionSocket } from "../../../src/drivers/server/keep-session.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const TCP_ADDRESS = "holdfast://127.0.0.1:0";

test.each(["unix", "tcp"])("over %s a claim is held, renewed, listed and released", async (kind) => {
  const it = await startServer(kind === "tcp" ? { listen: TCP_ADDRESS } : {});
  const { driver } = await openClient(it.addresses[0] as string);
  const claim = makeClaim("k", { label: "somebody" });
  const answer = expectHeld(await driver.claim(claim));
  expect(answer.remainingMs).toBeGreaterThan(29_000);
  expect(await driver.renew([claim])).toEqual([expect.objectContaining({ state: "held", token: answer.token })]);
  expect((await driver.list({ prefix: "" }, { max: 10 })).items).toEqual([
    expect.objectContaining({ label: "somebody", locks: claim.locks }),
  ]);
  expect(await driver.release(toReleases(claim))).toEqual([true]);
  expect(await driver.release(toReleases(claim))).toEqual([false]);
  expect(it.stats().claims).toBe(0);
});

test("a waiting claim is notified of its grant, in order of arrival", async () => {
  const it = await startServer();
  const first = await openClient(it.addresses[0] as string);
  const second = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("k");
  const claimB = makeClaim("k");
  const claimC = makeClaim("k");
  const before = expectHeld(await first.driver.claim(claimA));
  expect(await second.driver.claim(claimB)).toMatchObject({ state: "waiting" });
  expect(await first.driver.claim(claimC)).toMatchObject({ state: "waiting" });
  await first.driver.release(toReleases(claimA));
  const next = await second.pushes.waitForGrant(claimB);
  expect(next.token).toBeGreaterThan(before.token);
  expect(await first.driver.renew([claimC])).toMatchObject([{ state: "waiting" }]);
});

test("wait: false leaves no trace when busy", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  const holder = makeClaim("k");
  await driver.claim(holder);
  expect(await driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expect((await driver.list({ prefix: "" }, { max: 10 })).items).toHaveLength(1);
});

test("on a Unix socket a client's locks end with its connection, and the next waiter is granted at once", async () => {
  const it = await startServer();
  const closingClient = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("k", { ttlMs: "session" });
  const claimB = makeClaim("k");
  await closingClient.driver.claim(claimA);
  await next.driver.claim(claimB);
  await closingClient.driver.close();
  expect(await next.pushes.waitForGrant(claimB, 1_000)).toMatchObject({ state: "held" });
});

test("on a Unix socket a keep-session connection keeps the session's claims until it ends, too", async () => {
  const it = await startServer();
  const closingClient = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("k", { ttlMs: "session" });
  const claimB = makeClaim("k");
  await closingClient.driver.claim(claimA);
  await next.driver.claim(claimB);
  const keepSessionSocket = await openKeepSessionSocket(closingClient.driver);
  keepSessionSocket?.socket.write("whatever the child says\nis dropped\n");
  await closingClient.driver.close();
  await until(async () => (await next.driver.renew([claimB]))[0]?.state === "waiting", {
    within: 1_000,
    what: "an answer",
  });
  expect(next.pushes.all).toEqual([]);
  keepSessionSocket?.socket.destroy();
  await next.pushes.waitForGrant(claimB, 1_000);
});

test("a detached claim stays when its session ends", async () => {
  const it = await startServer();
  const closingClient = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("k");
  const { token } = expectHeld(await closingClient.driver.claim(claimA));
  expect(await closingClient.driver.detach?.([claimA])).toEqual([true]);
  await closingClient.driver.close();
  await until(() => it.stats().sessions === 1, { within: 1_000, what: "the end of the session" });
  expect(await next.driver.renew([claimA])).toMatchObject([{ state: "held", token }]);
  expect(await next.driver.release(toReleases(claimA))).toEqual([true]);
});

test("over TCP a disconnection keeps held claims, and grants pass by waiting ones until the client has reconnected", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const holder = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("k");
  await holder.driver.claim(claimA);
  await holder.driver.close();
  expect(await other.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
});

test("a process with an idle driver is not kept alive, one with a claim is", async () => {
  const it = await startServer();
  const before = process.getActiveResourcesInfo().length;
  const { driver } = await openClient(it.addresses[0] as string);
  const live = (): number => process.getActiveResourcesInfo().filter((kind) => kind.includes("Pipe")).length;
  const idle = live();
  const claimA: Claim = makeClaim("k");
  await driver.claim(claimA);
  expect(live()).toBe(idle + 1);
  await driver.release(toReleases(claimA));
  await until(() => live() === idle, { within: 500, what: "the socket to be let go" });
  expect(before).toBeGreaterThan(0);
});

test("a line that looks like HTTP gets one HTTP 400", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const port = Number((it.addresses[0] as string).split(":").at(-1));
  const socket = connect({ host: "127.0.0.1", port });
  let receivedText = "";
  socket.setEncoding("utf8").on("data", (text: string) => {
    receivedText += text;
  });
  socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await until(() => socket.destroyed, { within: 1_000, what: "the end of the connection" });
  expect(receivedText).toMatch(/^HTTP\/1\.1 400 /);
});

test("a claim belongs to the session that claimed it last", async () => {
  const it = await startServer();
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [claimA, claimB] = [makeClaim("a"), makeClaim("b")];
  await client.driver.claim(claimA);
  await client.driver.claim(claimB);
  const { token } = expectHeld(await other.driver.claim(claimA));
  await other.driver.renew([claimB]);
  await client.driver.close();
  await until(() => it.stats().sessions === 1, { within: 1_000, what: "the end of the first session" });
  expect(await other.driver.renew([claimA, claimB])).toMatchObject([{ state: "held", token }, { state: "held" }]);
  await other.driver.close();
  await until(() => it.stats().claims === 0, { within: 1_000, what: "the end of the claims" });
});

test("a newer connection of a session replaces the older one, and takes over its claims", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const port = Number((it.addresses[0] as string).split(":").at(-1));
  const session = randomId();
  const open = async (): Promise<{ got: () => string; socket: Socket }> => {
    const socket = connect({ host: "127.0.0.1", port });
    let receivedText = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      receivedText += text;
    });
    socket.write(`${JSON.stringify({ hello: { protocol: 1, session } })}\n`);
    await until(() => receivedText.includes("\n"), { within: 1_000, what: "the hello" });
    return { got: () => receivedText, socket };
  };
  const older = await open();
  const id = randomId();
  older.socket.write(`["${it.runId}",["claim",1,"${id}",["k"],30000]]\n`);
  await until(() => older.got().includes('"held"'), { within: 1_000, what: "the grant" });
  const newer = await open();
  await until(() => older.socket.destroyed, { within: 1_000, what: "the end of the older connection" });
  expect(older.got()).toContain('"REPLACED"');
  newer.socket.write(`["${it.runId}",["renew",1,["${id}"]]]\n`);
  await until(() => newer.got().includes('"held"'), { within: 1_000, what: "the renewal" });
  expect(it.stats().sessions).toBe(1);
  newer.socket.destroy();
});
