// Locks over HTTP that one process acquires and another releases; references work in HTTP, library and command line.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { CommandResult } from "../../support/cli-sandbox.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { startGateway } from "../../support/gateway-fixture.ts";
import { cleanUpAfterEach, onCleanup, post, request, startHttpServer } from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

const sandbox = cliSandbox();

checkLeaksAfterEach();
cleanUpAfterEach();

function openLocks(path: string): ReturnType<typeof createLocks> {
  const locks = createLocks(lockServer({ path }));
  onCleanup(() => locks.close());
  return locks;
}

/** A process of its own that POSTs one body and prints the answer. */
function startPoster(url: string, path: string, body: object): ReturnType<typeof spawn> {
  const program = `
    const request = require("node:http").request(process.argv[1], { method: "POST", headers: { "content-type": "application/json" } }, (answer) => {
      answer.setEncoding("utf8").on("data", (text) => process.stdout.write(text)).on("end", () => setInterval(() => {}, 1000));
    });
    request.end(process.argv[2]);`;
  const child = spawn(process.execPath, ["-e", program, `${url}${path}`, JSON.stringify(body)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onCleanup(() => {
    child.kill("SIGKILL");
  });
  return child;
}

async function readFirstLine(child: ReturnType<typeof spawn>): Promise<string> {
  let text = "";
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
    text += chunk.toString();
    if (text.includes("\n")) break;
  }
  return text;
}

test("a lock that was acquired by a killed process is released by another process", async () => {
  const { url } = await startHttpServer();
  const child = startPoster(url, "/v1/claims", { key: "k" });
  const held = JSON.parse(await readFirstLine(child));
  expect(held.state).toBe("held");
  child.kill("SIGKILL");
  await once(child, "exit");
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json.code).toBe("BUSY");
  const releaseResponse = JSON.parse(
    await readFirstLine(startPoster(url, "/v1/claims/release", { reference: held.reference })),
  );
  expect(releaseResponse.state).toBe("released");
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).status).toBe(201);
});

test("a process that is killed while it waits leaves no queue entry", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const child = startPoster(url, "/v1/claims", { key: "k" });
  await until(() => stats().claims === 2, { within: 5_000, what: "its place" });
  child.kill("SIGKILL");
  await expect.poll(() => stats().claims, { timeout: 5_000 }).toBe(1);
});

test("a lock that the library detached is renewed and released over HTTP, and the reverse", async () => {
  const { url, path } = await startHttpServer();
  const locks = openLocks(path);
  const lock = await locks.acquire("k", { ttl: "20s" });
  const { token } = lock;
  const reference = await lock.detach();
  const renewResponse = await post(url, "/v1/claims/renew", { reference });
  expect(renewResponse.json).toMatchObject({ state: "held", reference, token: String(token), keys: ["k"] });
  expect((await post(url, "/v1/claims/release", { reference })).status).toBe(200);
  await expect(locks.attach(reference)).rejects.toMatchObject({ code: "LOCK_LOST", reason: "released" });

  const held = (await post(url, "/v1/claims", { key: "k", ttl: "20s" })).json;
  const attachedLock = await locks.attach(held.reference);
  expect([attachedLock.keys, String(attachedLock.token)]).toEqual([["k"], held.token]);
  expect(await attachedLock.release()).toBe(true);
  const lateResponse = await post(url, "/v1/claims/release", { reference: held.reference });
  expect(lateResponse).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "released" } });
});

test("the library refuses the reference of a waiting claim, and changes nothing", async () => {
  const { url, path, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "1ms" });
  const locks = openLocks(path);
  await expect(locks.attach(waiting.json.reference)).rejects.toThrow(TypeError);
  expect(stats().claims).toBe(2);
});

test("the reference of a lock that its process still holds can be used to renew and release it", async () => {
  const { url, path } = await startHttpServer();
  const { toReference } = await import("../../../src/client/transfer.ts");
  const locks = openLocks(path);
  const lock = await locks.acquire("k");
  const reference = toReference(lock);
  expect((await post(url, "/v1/claims/renew", { reference })).status).toBe(200);
  lock.throwIfLost();
  expect((await post(url, "/v1/claims/release", { reference })).status).toBe(200);
  expect(await lock.release()).toBe(false);

  const session = await locks.acquire("s", { ttl: "session" });
  const sessionReference = toReference(session);
  const renewal = await post(url, "/v1/claims/renew", { reference: sessionReference });
  expect(renewal.json).toMatchObject({ status: 400, reason: "session" });
  session.throwIfLost();
  expect((await post(url, "/v1/claims/release", { reference: sessionReference })).status).toBe(200);
  // at once, not at the next renewal ten seconds later
  await until(() => session.signal.aborted, { within: 5_000, what: "its holder to be told" });
  expect((await post(url, "/v1/claims", { key: "s", wait: 0 })).status).toBe(201);
});

test("the command line checks, renews and releases a lock that was acquired over HTTP", async () => {
  const { url, path } = await startHttpServer();
  const held = (await post(url, "/v1/claims", { key: "k" })).json;
  const holdfast = (name: string): Promise<CommandResult> =>
    sandbox.run([name, "--url", `holdfast+unix://${path}`], { env: { HOLDFAST_REFERENCE: held.reference } });
  for (const verb of ["check", "renew"]) expect(await holdfast(verb)).toMatchObject({ code: 0 });
  expect((await request(url, "/v1/locks")).json.locks).toHaveLength(1);
  expect(await holdfast("release")).toMatchObject({ code: 0 });
  expect((await request(url, "/v1/locks")).json.locks).toHaveLength(0);
  expect(await holdfast("release")).toMatchObject({ code: 123 });
}, 30_000);

test("the same holds with a gateway on another store: it keeps the granted locks", async () => {
  const { memory } = await import("../../../src/drivers/memory.ts");
  const server = await startGateway({ driver: memory() });
  const held = await post(server.url, "/v1/claims", { key: "k", ttl: "10s" });
  expect(held.status).toBe(201);
  const first = post(server.url, "/v1/claims", { key: "k", label: "first" });
  await until(async () => (await request(server.url, "/v1/locks")).json.locks.length === 2, {
    within: 2_000,
    what: "its place",
  });
  expect((await post(server.url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  expect((await post(server.url, "/v1/claims/release", { reference: held.json.reference })).status).toBe(200);
  const granted = await first;
  expect(granted.status).toBe(201);
  const waiting = await post(server.url, "/v1/claims", { key: "k", wait: "10ms" });
  expect(waiting.status).toBe(202);
  expect((await post(server.url, "/v1/claims/release", { reference: waiting.json.reference })).status).toBe(200);
  expect((await post(server.url, "/v1/claims/release", { reference: granted.json.reference })).status).toBe(200);
  const secondRelease = await post(server.url, "/v1/claims/release", { reference: granted.json.reference });
  expect(secondRelease).toMatchObject({ status: 409, json: { code: "LOCK_LOST" } });
});
