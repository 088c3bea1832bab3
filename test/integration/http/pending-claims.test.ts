// Long waits and crashes take no time here: the server's clock and disk are the test's, the sockets are real.

import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { ALLOW_ALL } from "../../../src/auth/access-control.ts";
import type { HttpServer } from "../../../src/gateway/http/http-server.ts";
import { createHttpServer } from "../../../src/gateway/http/http-server.ts";
import { encodeReference } from "../../../src/protocol/lock-reference.ts";
import type { ServerParts } from "../../../src/server/compose.ts";
import type { LockService } from "../../../src/server/service.ts";
import { until } from "../../../src/testing/until.ts";
import type { HttpResponse } from "../../support/http-fixture.ts";
import { cleanUpAfterEach, onCleanup, post, request } from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { expectHeld, makeClaim } from "../../support/server-fixture.ts";
import { serverDashboard, serverGateway } from "../../support/server-gateway.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

interface HttpSite {
  readonly url: string;
  readonly http: HttpServer;
  close(): Promise<void>;
}

/** The HTTP port of the test world's current server. */
async function createSite(harness: ServerHarness): Promise<HttpSite> {
  const parts = harness.parts as ServerParts;
  const service = serverGateway(harness.service as LockService);
  const http = createHttpServer({
    ...parts,
    service,
    dashboard: serverDashboard(service, parts),
    access: ALLOW_ALL,
    checkReadiness: () => ({ ok: true }),
    version: "0",
    host: "127.0.0.1",
  });
  const { server } = http;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  let closed: Promise<void> | null = null;
  const close = (): Promise<void> =>
    (closed ??= new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }).then(() => http.close()));
  onCleanup(close);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, http, close };
}

async function openSite(
  options: ConstructorParameters<typeof ServerHarness>[0] = {},
): Promise<[ServerHarness, HttpSite]> {
  const harness = new ServerHarness({ remote: true, ...options });
  await harness.start();
  return [harness, await createSite(harness)];
}

const countClaims = (harness: ServerHarness): number => harness.inspect().records.size;
const SOON_BOUND = { within: 2_000, what: "the server to have heard it" };

test("a request waits 25 s at most, however long a wait it asks for, and keeps its place", async () => {
  const [harness, { url }] = await openSite();
  await post(url, "/v1/claims", { key: "k", ttl: "5m" });
  const waiting = post(url, "/v1/claims", { key: "k", ttl: "5m", wait: "1h" });
  await until(() => countClaims(harness) === 2, SOON_BOUND);
  let isAnswered = false;
  void waiting.then(() => {
    isAnswered = true;
  });
  await harness.clock.advance(24_900);
  expect(isAnswered).toBe(false);
  await harness.clock.advance(200);
  expect(await waiting).toMatchObject({ status: 202, json: { graceMs: 10_000 } });
  expect(countClaims(harness)).toBe(2);
});

test("a queue entry outlives its own lease while a request waits and during the grace; then it is dropped", async () => {
  const [harness, { url, http }] = await openSite();
  await post(url, "/v1/claims", { key: "k", ttl: "5m" });
  const pending = post(url, "/v1/claims", { key: "k", ttl: "200ms", wait: "20s" });
  await until(() => countClaims(harness) === 2, SOON_BOUND);
  await harness.clock.advance(20_100);
  const { json } = await pending;
  expect(json.state).toBe("waiting");
  await harness.clock.advance(9_000);
  expect([countClaims(harness), http.stats().waiting]).toEqual([2, 1]);
  await harness.clock.advance(1_500);
  expect([countClaims(harness), http.stats().waiting]).toEqual([1, 0]);
  const lostResponse = await post(url, "/v1/claims/wait", { reference: json.reference });
  expect(lostResponse).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "expired" } });
});

test("a lock ends with its lease unless it is renewed", async () => {
  const [harness, { url }] = await openSite();
  const { reference } = (await post(url, "/v1/claims", { key: "k", ttl: "10s" })).json;
  for (let turn = 0; turn < 5; turn++) {
    await harness.clock.advance(9_000);
    expect((await post(url, "/v1/claims/renew", { reference })).status).toBe(200);
  }
  await harness.clock.advance(10_100);
  const lateResponse = await post(url, "/v1/claims/renew", { reference });
  expect(lateResponse).toMatchObject({ status: 409, json: { reason: "expired" } });
});

test("a request that waits is answered when another request for the same claim does not wait", async () => {
  const [harness, { url }] = await openSite();
  await post(url, "/v1/claims", { key: "k", ttl: "5m" });
  const pendingClaim = post(url, "/v1/claims", { key: "k", wait: "1s" });
  await until(() => countClaims(harness) === 2, SOON_BOUND);
  await harness.clock.advance(1_000);
  const { reference } = (await pendingClaim).json;
  let status = 0;
  const first = post(url, "/v1/claims/wait", { reference }).then((response) => {
    status = response.status;
  });
  const { records } = harness.inspect();
  await until(() => [...records.values()].every(({ isSuspended }) => !isSuspended), SOON_BOUND);
  expect(await post(url, "/v1/claims/wait", { reference, wait: 0 })).toMatchObject({ status: 202 });
  await until(() => status !== 0, { within: 2_000, what: "the response to the first request" });
  await first;
  expect(status).toBe(202);
});

test("a crash of the server loses no granted lock, and grants none twice", async () => {
  const [harness, before] = await openSite();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  const heldResponse = await post(before.url, "/v1/claims", { key: "given" });
  await post(before.url, "/v1/claims/release", { reference: heldResponse.json.reference });
  // the next server waits for the other clients; for locks held over HTTP it need not
  const otherClient = await harness.connectClient(false);
  const driverClaim = otherClient.driver.claim(makeClaim("other"));
  await harness.clock.advance(1);
  await driverClaim;
  otherClient.isUnreachable = true;
  const pendingClaim = post(before.url, "/v1/claims", { key: "k", wait: "1s" });
  await until(() => countClaims(harness) === 3, SOON_BOUND);
  await harness.clock.advance(1_000);
  const waiting = await pendingClaim;
  harness.crash();
  await before.close();
  await harness.clock.advance(5_000);
  await harness.start();
  const { url } = await createSite(harness);
  expect(harness.inspect().isRecovering).toBe(true);
  // the held lock was restored from disk, and is already answered
  expect(await post(url, "/v1/claims/renew", { reference: held.json.reference })).toMatchObject({
    status: 200,
    json: { token: held.json.token },
  });
  const busyResponse = await post(url, "/v1/claims", { key: "given", wait: 0 });
  expect(busyResponse).toMatchObject({ status: 503, json: { code: "PAUSED", reason: "recovery" } });
  // a key that is known to be held is still busy
  expect(await post(url, "/v1/claims", { key: "k", wait: 0 })).toMatchObject({ status: 409, json: { code: "BUSY" } });
  // an entry may still be reported: it is too early to answer that it is gone
  const earlyPoll = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect(earlyPoll).toMatchObject({ status: 503, json: { code: "RECLAIMING" } });
  const queuedClaim = post(url, "/v1/claims", { key: "given" });
  await until(() => countClaims(harness) === 2, SOON_BOUND);
  await harness.clock.advance(15_000);
  expect((await post(url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  await harness.clock.advance(10_100);
  const next = await queuedClaim;
  expect(next.status).toBe(202);
  const granted = post(url, "/v1/claims/wait", { reference: next.json.reference });
  await request(url, "/health");
  await harness.clock.advance(6_000);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(await granted).toMatchObject({ status: 201, json: { keys: ["given"] } });
  const last = await post(url, "/v1/claims", { key: "free", wait: 0 });
  expect(last.status).toBe(201);
  expect(BigInt(last.json.token)).toBeGreaterThan(BigInt(heldResponse.json.token));
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json).toMatchObject({ code: "BUSY", reason: "held" });
});

test("recovery does not wait for HTTP clients: their locks are on disk", async () => {
  const [harness, before] = await openSite();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  harness.crash();
  await before.close();
  await harness.start();
  const { url } = await createSite(harness);
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json).toMatchObject({ code: "BUSY", reason: "held" });
  expect((await post(url, "/v1/claims", { key: "x", wait: 0 })).status).toBe(201);
  expect((await post(url, "/v1/claims/release", { reference: held.json.reference })).status).toBe(200);
});

test("a stopping server answers waiting requests, and the next one knows their place", async () => {
  const [harness, before] = await openSite();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  const first = post(before.url, "/v1/claims", { key: "k" });
  await until(() => countClaims(harness) === 2, SOON_BOUND);
  const second = post(before.url, "/v1/claims", { key: "k" });
  await until(() => countClaims(harness) === 3, SOON_BOUND);
  before.http.drain();
  const answer = await first;
  expect(answer).toMatchObject({ status: 202, headers: { connection: "close" } });
  const secondAnswer = await second;
  await harness.stop();
  await before.close();
  await harness.start();
  const { url } = await createSite(harness);
  const laterPoll = post(url, "/v1/claims/wait", { reference: secondAnswer.json.reference });
  const secondPoll = post(url, "/v1/claims/wait", { reference: answer.json.reference });
  await until(async () => (await request(url, "/v1/locks")).json.locks.length === 3, SOON_BOUND);
  await until(() => (harness.inspect().table.queues.get("k")?.entries.last?.arrival ?? 0) > 0, SOON_BOUND);
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  const granted = await secondPoll;
  expect(granted).toMatchObject({ status: 201, json: { tag: answer.json.tag } });
  await post(url, "/v1/claims/release", { reference: granted.json.reference });
  expect((await laterPoll).json.tag).toBe(secondAnswer.json.tag);
});

test("on a full disk no lock is granted that would not outlive a crash, and held locks continue", async () => {
  const [harness, { url }] = await openSite();
  const held = await post(url, "/v1/claims", { key: "k" });
  const disk = harness.storage as NonNullable<typeof harness.storage>;
  disk.isFull = true;
  const refusal = await post(url, "/v1/claims", { key: "x" });
  expect(refusal).toMatchObject({ status: 503, json: { code: "DISK" } });
  expect(countClaims(harness)).toBe(1);
  expect((await post(url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  expect((await request(url, "/v1/locks")).json.locks).toHaveLength(1);
  const busyResponse = await post(url, "/v1/claims", { key: "k", wait: 0 });
  expect(busyResponse.json.code).toBe("BUSY");
  disk.isFull = false;
  await harness.clock.advance(2_000);
  expect((await post(url, "/v1/claims", { key: "x", wait: 0 })).status).toBe(201);
});

test("a lock is on disk before its grant is answered", async () => {
  const [harness, { url }] = await openSite();
  const disk = harness.storage as NonNullable<typeof harness.storage>;
  let open = (): void => undefined;
  disk.writeGate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let isAnswered = false;
  const pending = post(url, "/v1/claims", { key: "k" }).then((answer) => {
    isAnswered = true;
    return answer;
  });
  await until(() => disk.writes.filter((it) => it === "append").length > 0, SOON_BOUND);
  await request(url, "/health");
  expect(isAnswered).toBe(false);
  open();
  expect((await pending).status).toBe(201);
});

test("the remaining time is measured after the disk write; a claim that has ended by then is not answered as held", async () => {
  for (const verb of ["claim", "renew"]) {
    const [harness, { url }] = await openSite();
    const disk = harness.storage as NonNullable<typeof harness.storage>;
    const slowly = async (ms: number, key: string): Promise<HttpResponse> => {
      const lock = makeClaim(key, { ttlMs: 10_000 });
      const client = await harness.connectClient(false);
      let body: object = { key, ttl: "10s" };
      if (verb === "renew") {
        // held by a session that gave its reference away: the first renewal over HTTP persists it
        const pendingClaim = client.driver.claim(lock);
        await harness.clock.advance(1);
        const { token } = expectHeld(await pendingClaim);
        body = { reference: encodeReference([{ claim: lock, firstToken: token, token, prefix: "" }]) };
      }
      let open = (): void => undefined;
      disk.writeGate = new Promise<void>((resolve) => {
        open = resolve;
      });
      const before = disk.writes.length;
      const answer = post(url, verb === "claim" ? "/v1/claims" : "/v1/claims/renew", body);
      await until(() => disk.writes.length > before, SOON_BOUND);
      await harness.clock.advance(ms);
      open();
      return answer;
    };
    const slowResponse = await slowly(4_000, "slow");
    expect(slowResponse).toMatchObject({ status: verb === "claim" ? 201 : 200, json: { remainingMs: 6_000 } });
    const lateResponse = await slowly(10_000, "late");
    expect(lateResponse).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "expired" } });
    expect((await post(url, "/v1/claims", { key: "late", wait: 0 })).status).toBe(201);
  }
});
