import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { openKeepSessionSocket } from "../../../src/drivers/server/keep-session.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const TCP_ADDRESS = "tcp://127.0.0.1:0";

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
  const a = makeClaim("k");
  const b = makeClaim("k");
  const c = makeClaim("k");
  const before = expectHeld(await first.driver.claim(a));
  expect(await second.driver.claim(b)).toMatchObject({ state: "waiting" });
  expect(await first.driver.claim(c)).toMatchObject({ state: "waiting" });
  await first.driver.release(toReleases(a));
  const next = await second.pushes.waitForGrant(b);
  expect(next.token).toBeGreaterThan(before.token);
  expect(await first.driver.renew([c])).toMatchObject([{ state: "waiting" }]);
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
  const dying = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const a = makeClaim("k", { ttlMs: "session" });
  const b = makeClaim("k");
  await dying.driver.claim(a);
  await next.driver.claim(b);
  await dying.driver.close();
  expect(await next.pushes.waitForGrant(b, 1_000)).toMatchObject({ state: "held" });
});

test("on a Unix socket a keep-session connection keeps the session's claims until it ends, too", async () => {
  const it = await startServer();
  const dying = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const a = makeClaim("k", { ttlMs: "session" });
  const b = makeClaim("k");
  await dying.driver.claim(a);
  await next.driver.claim(b);
  const keepSessionSocket = await openKeepSessionSocket(dying.driver);
  keepSessionSocket?.socket.write("whatever the child says\nis dropped\n");
  await dying.driver.close();
  await until(async () => (await next.driver.renew([b]))[0]?.state === "waiting", { within: 1_000, what: "an answer" });
  expect(next.pushes.all).toEqual([]);
  keepSessionSocket?.socket.destroy();
  await next.pushes.waitForGrant(b, 1_000);
});

test("a detached claim stays when its session ends", async () => {
  const it = await startServer();
  const dying = await openClient(it.addresses[0] as string);
  const next = await openClient(it.addresses[0] as string);
  const a = makeClaim("k");
  const { token } = expectHeld(await dying.driver.claim(a));
  expect(await dying.driver.detach?.([a])).toEqual([true]);
  await dying.driver.close();
  await until(() => it.stats().sessions === 1, { within: 1_000, what: "the end of the session" });
  expect(await next.driver.renew([a])).toMatchObject([{ state: "held", token }]);
  expect(await next.driver.release(toReleases(a))).toEqual([true]);
});

test("over TCP a disconnection keeps held claims, and grants pass by waiting ones until the client has reconnected", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const holder = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const a = makeClaim("k");
  await holder.driver.claim(a);
  await holder.driver.close();
  expect(await other.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
});

test("a process with an idle driver is not kept alive, one with a claim is", async () => {
  const it = await startServer();
  const before = process.getActiveResourcesInfo().length;
  const { driver } = await openClient(it.addresses[0] as string);
  const live = (): number => process.getActiveResourcesInfo().filter((kind) => kind.includes("Pipe")).length;
  const idle = live();
  const a: Claim = makeClaim("k");
  await driver.claim(a);
  expect(live()).toBe(idle + 1);
  await driver.release(toReleases(a));
  await until(() => live() === idle, { within: 500, what: "the socket to be let go" });
  expect(before).toBeGreaterThan(0);
});

test("a line that looks like HTTP gets one HTTP 400", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const port = Number((it.addresses[0] as string).split(":").at(-1));
  const socket = connect({ host: "127.0.0.1", port });
  let got = "";
  socket.setEncoding("utf8").on("data", (text: string) => {
    got += text;
  });
  socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await until(() => socket.destroyed, { within: 1_000, what: "the end of the connection" });
  expect(got).toMatch(/^HTTP\/1\.1 400 /);
});

test("a claim belongs to the session that claimed it last", async () => {
  const it = await startServer();
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [a, b] = [makeClaim("a"), makeClaim("b")];
  await one.driver.claim(a);
  await one.driver.claim(b);
  const { token } = expectHeld(await other.driver.claim(a));
  await other.driver.renew([b]);
  await one.driver.close();
  await until(() => it.stats().sessions === 1, { within: 1_000, what: "the end of the first session" });
  expect(await other.driver.renew([a, b])).toMatchObject([{ state: "held", token }, { state: "held" }]);
  await other.driver.close();
  await until(() => it.stats().claims === 0, { within: 1_000, what: "the end of the claims" });
});

test("a newer connection of a session replaces the older one, and takes over its claims", async () => {
  const it = await startServer({ listen: TCP_ADDRESS });
  const port = Number((it.addresses[0] as string).split(":").at(-1));
  const session = randomId();
  const open = async (): Promise<{ got: () => string; socket: Socket }> => {
    const socket = connect({ host: "127.0.0.1", port });
    let got = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      got += text;
    });
    socket.write(`${JSON.stringify({ hello: { protocol: 1, session } })}\n`);
    await until(() => got.includes("\n"), { within: 1_000, what: "the hello" });
    return { got: () => got, socket };
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
