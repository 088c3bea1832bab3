// Gateways on a store that several of them share: what each serves, accounts, limits, and how they end.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Right } from "../../../src/auth/access-control.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { resolveGatewayConfig } from "../../../src/gateway/gateway-config.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";
import type { TestGateway } from "../../support/gateway-fixture.ts";
import { startGateway } from "../../support/gateway-fixture.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  onCleanup,
  openRequest,
  post,
  request,
} from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const SOON = 5_000;

/** Gateways on one store, each with a driver of its own. */
function createSite(): {
  driver(): Driver;
  start(options?: Parameters<typeof startGateway>[0] | object): Promise<TestGateway>;
} {
  const store = memoryStore();
  const driver = (): Driver => memory({ store });
  return { driver, start: (options = {}) => startGateway({ driver: driver(), ...options }) };
}

async function countClaims(url: string, credential?: string): Promise<number> {
  const { json } = await request(url, "/v1/locks", credential === undefined ? {} : { credential });
  return json.locks.length;
}

function writeKey(): string {
  const path = join(createTemporaryDirectory(), "reference-key");
  writeFileSync(path, Buffer.alloc(32, 7));
  return path;
}

test("a held lock is renewed and released by any gateway of its store; a place belongs to the one that has it", async () => {
  const { start } = createSite();
  const [first, second] = [await start(), await start()];
  const held = await post(first.url, "/v1/claims", { key: "k" });
  expect(held.status).toBe(201);
  const { reference, token } = held.json;
  expect(await post(second.url, "/v1/claims/renew", { reference })).toMatchObject({ status: 200, json: { token } });
  const waiting = await post(first.url, "/v1/claims", { key: "k", wait: 1 });
  const foreign = await post(second.url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect(foreign).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "unknown" } });
  const granted = post(first.url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect((await post(second.url, "/v1/claims/release", { reference })).status).toBe(200);
  expect((await granted).status).toBe(201);
});

test("the library and a gateway pass locks to each other", async () => {
  const { start, driver } = createSite();
  const { url } = await start();
  const locks = createLocks(driver());
  onCleanup(() => locks.close());
  const held = await post(url, "/v1/claims", { key: "k" });
  const lock = await locks.attach(held.json.reference);
  expect(String(lock.token)).toBe(held.json.token);
  const reference = await lock.detach();
  expect((await post(url, "/v1/claims/release", { reference })).status).toBe(200);
});

test("a lock that is granted between two requests is kept for a moment, and then others get it", async () => {
  const { start, driver } = createSite();
  const { url } = await start();
  const locks = createLocks(driver(), { order: "strict" });
  onCleanup(() => locks.close());
  const first = await locks.acquire("k");
  const prompt = await post(url, "/v1/claims", { key: "k", wait: 1, label: "prompt" });
  await first.release();
  const next = await post(url, "/v1/claims/wait", { reference: prompt.json.reference, wait: 0 });
  expect(next.status).toBe(201);
  const slow = await post(url, "/v1/claims", { key: "k", wait: 1, label: "slow" });
  const other = locks.acquire("k", { wait: "8s" });
  await until(async () => (await countClaims(url)) === 3, { within: SOON, what: "both waiters" });
  await post(url, "/v1/claims/release", { reference: next.json.reference });
  const otherLock = await other;
  // the place goes on, behind the other
  const late = post(url, "/v1/claims/wait", { reference: slow.json.reference });
  await otherLock.release();
  expect(await late).toMatchObject({ status: 201 });
  // by the reference of the place, too, which now has another claim
  expect((await post(url, "/v1/claims/release", { reference: slow.json.reference })).status).toBe(200);
  expect(await countClaims(url)).toBe(0);
}, 20_000);

test("with accounts, a reference is good for its account alone, on each gateway with the key", async () => {
  const { start, driver } = createSite();
  const [ana, bert] = [testAccount("ana", "team/"), testAccount("bert", "team/")];
  const access = createTestAccess(ana, bert);
  const referenceKeyFile = writeKey();
  const [first, second, stranger] = [
    await start({ access, referenceKeyFile }),
    await start({ access, referenceKeyFile }),
    await start({ access }),
  ];
  const by = (account: typeof ana) => ({ credential: account.credential });
  const held = await post(first.url, "/v1/claims", { key: "team/k" }, by(ana));
  const { reference } = held.json;
  expect((await post(second.url, "/v1/claims/renew", { reference }, by(ana))).status).toBe(200);
  const unknown = { status: 409, json: { code: "LOCK_LOST", reason: "unknown" } };
  const [text, account, mac] = [reference.split(".").slice(0, 3).join("."), ...reference.split(".").slice(3)];
  const forgeries = [
    [second.url, reference, bert],
    [stranger.url, reference, ana],
    [second.url, text, ana],
    [second.url, `${text}.${Buffer.from("bert").toString("base64url")}.${mac}`, bert],
    [second.url, `${text}.${account}.${"A".repeat(22)}`, ana],
  ] as const;
  for (const [url, forged, from] of forgeries) {
    for (const verb of ["renew", "release"])
      expect(await post(url, `/v1/claims/${verb}`, { reference: forged }, by(from))).toMatchObject(unknown);
  }
  const waiting = await post(first.url, "/v1/claims", { key: "team/k", wait: 1 }, by(bert));
  const place = { reference: waiting.json.reference };
  expect(await post(first.url, "/v1/claims/wait", { ...place, wait: 0 }, by(ana))).toMatchObject(unknown);
  expect(await post(first.url, "/v1/claims/release", place, by(ana))).toMatchObject(unknown);
  // the library reads it, and the lock is the store's
  const locks = createLocks(driver());
  onCleanup(() => locks.close());
  const attached = await locks.attach(reference);
  const plain = await attached.detach();
  expect(await post(second.url, "/v1/claims/release", { reference: plain }, by(ana))).toMatchObject(unknown);
  expect((await post(second.url, "/v1/claims/release", { reference }, by(ana))).status).toBe(200);
});

test("rights hold for every route, also those of a store that knows none", async () => {
  const { start } = createSite();
  const withRight = (name: string, rights: readonly Right[]) => testAccount(name, "team/", rights);
  const [worker, reader, operator] = [
    withRight("worker", ["acquire"]),
    withRight("reader", ["inspect"]),
    withRight("operator", ["revoke"]),
  ];
  const access = createTestAccess(worker, reader, operator);
  const { url } = await start({ access });
  const forbidden = { status: 403, json: { code: "FORBIDDEN" } };
  const by = ({ credential }: typeof worker) => ({ credential });
  expect((await post(url, "/v1/claims", { key: "team/k" })).status).toBe(401);
  expect(await post(url, "/v1/claims", { key: "other", wait: 0 }, by(worker))).toMatchObject(forbidden);
  expect(await post(url, "/v1/claims", { key: "team/k", wait: 0 }, by(reader))).toMatchObject(forbidden);
  const held = await post(url, "/v1/claims", { key: "team/k" }, by(worker));
  const revocation = { key: "team/k", token: held.json.token, reason: "stuck" };
  expect([await countClaims(url, worker.credential), await countClaims(url, reader.credential)]).toEqual([0, 1]);
  expect(await post(url, "/v1/locks/revoke", revocation, by(worker))).toMatchObject(forbidden);
  expect((await post(url, "/v1/locks/revoke", revocation, by(operator))).status).toBe(200);
  const lost = await post(url, "/v1/claims/renew", { reference: held.json.reference }, by(worker));
  expect(lost).toMatchObject({ status: 409, json: { reason: "revoked" } });
  await post(url, "/v1/claims/release", { reference: held.json.reference }, by(worker));
  const again = await post(url, "/v1/claims", { key: "team/k" }, by(worker));
  const waiting = post(url, "/v1/claims", { key: "team/k" }, by(worker));
  await until(async () => (await countClaims(url, reader.credential)) === 2, { within: SOON, what: "the waiter" });
  const without = { ...worker.account, rules: [{ prefix: "elsewhere/", rights: ["acquire"] as const }] };
  access.replace([without, reader.account, operator.account]);
  expect(await waiting).toMatchObject(forbidden);
  await until(async () => (await countClaims(url, reader.credential)) === 1, { within: SOON, what: "the first end" });
  access.replace([worker.account, reader.account, operator.account]);
  const second = post(url, "/v1/claims", { key: "team/k" }, by(worker));
  await until(async () => (await countClaims(url, reader.credential)) === 2, { within: SOON, what: "the waiter" });
  access.replace([reader.account, operator.account]);
  expect((await second).status).toBe(401);
  await until(async () => (await countClaims(url, reader.credential)) === 1, {
    within: SOON,
    what: "the end of its place",
  });
  expect((await post(url, "/v1/claims/release", { reference: again.json.reference }, by(worker))).status).toBe(401);
});

test("an account has no more claims than its limit on one gateway; what ends makes room", async () => {
  const { start } = createSite();
  const [ana, bert] = [testAccount("ana"), testAccount("bert")];
  const limits = { claimsPerAccount: 2, claims: 3 };
  const { url } = await start({ access: createTestAccess(ana, bert), limits });
  const claim = (account: typeof ana, key: string, ttl = "30s") =>
    post(url, "/v1/claims", { key, ttl, wait: 0 }, { credential: account.credential });
  const first = await claim(ana, "a", "200ms");
  expect([first.status, (await claim(ana, "b")).status]).toEqual([201, 201]);
  expect(await claim(ana, "c")).toMatchObject({ status: 429, json: { code: "LIMIT", reason: "full" } });
  const held = await claim(bert, "d");
  expect([held.status, (await claim(bert, "e")).status]).toEqual([201, 429]);
  await post(url, "/v1/claims/release", { reference: held.json.reference }, { credential: bert.credential });
  expect((await claim(bert, "e")).status).toBe(201);
  await until(async () => (await claim(ana, "c")).status === 201, { within: SOON, what: "the end of a lease" });
});

test("events and metrics tell of what has passed through the gateway", async () => {
  const { start, driver } = createSite();
  const { url } = await start();
  const stream = await openRequest(url, "/events");
  onCleanup(() => void stream.destroy());
  let text = "";
  stream.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const locks = createLocks(driver());
  onCleanup(() => locks.close());
  await (await locks.acquire("direct")).release();
  const held = await post(url, "/v1/claims", { key: "k", label: "ana" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: 1 });
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  const ended = await post(url, "/v1/claims", { key: "k", wait: 1 });
  await post(url, "/v1/claims/release", { reference: ended.json.reference });
  const kinds = (): string[] => [...text.matchAll(/^event: (\w+)$/gm)].map(([, kind]) => kind as string);
  const expected = ["granted", "waiting", "released", "granted", "waiting", "withdrawn"];
  await until(() => kinds().length >= expected.length, { within: SOON, what: "the events" });
  expect([...kinds()].sort()).toEqual([...expected].sort());
  const { text: metrics } = await request(url, "/metrics");
  expect(metrics).toContain('holdfast_claims{state="held"} 1');
  expect(metrics).toContain('holdfast_claims{state="waiting"} 0');
  expect(metrics).not.toContain("holdfast_connections ");
});

test("a gateway that ends answers its waiters and withdraws their claims; held locks stay held", async () => {
  const { start } = createSite();
  const [first, second] = [await start(), await start()];
  const held = await post(first.url, "/v1/claims", { key: "k" });
  const waiting = post(first.url, "/v1/claims", { key: "k" });
  await until(async () => (await countClaims(second.url)) === 2, { within: SOON, what: "the waiter" });
  await first.close();
  expect((await waiting).status).toBe(202);
  expect(await countClaims(second.url)).toBe(1);
  expect((await post(second.url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
});

test("what a store cannot is answered with 501, and what needs no claim works", async () => {
  const inner = memory();
  const traits = { lease: { claim: false, sessionMs: 5_000 } } as const;
  const driver = delegate(inner, { open: async (events) => ({ ...(await inner.open(events)), ...traits }) });
  const { url } = await startGateway({ driver });
  const refused = await post(url, "/v1/claims", { key: "k" });
  expect(refused).toMatchObject({ status: 501, json: { code: "UNSUPPORTED", reason: "store" } });
  expect(refused.json.detail).toContain("session");
  for (const path of ["/v1/locks", "/health", "/ready", "/metrics"])
    expect((await request(url, path)).status).toBe(200);
});

test("other machines reach a gateway only with accounts and TLS, and a short key is refused", () => {
  const problemsOf = (options: Partial<Parameters<typeof resolveGatewayConfig>[0]>) =>
    resolveGatewayConfig({ http: "127.0.0.1:0", ...options }).problems.map(({ option }) => option);
  expect(problemsOf({})).toEqual([]);
  expect(problemsOf({ http: "0.0.0.0:7421" })).toEqual(["http"]);
  expect(problemsOf({ http: "0.0.0.0:7421", insecure: true })).toEqual([]);
  expect(problemsOf({ http: "nonsense", httpNames: ["*"] })).toEqual(["http", "httpNames"]);
  const path = join(createTemporaryDirectory(), "key");
  writeFileSync(path, "short");
  expect(problemsOf({ referenceKeyFile: path })).toEqual(["referenceKey"]);
  expect(problemsOf({ referenceKeyFile: `${path}.missing` })).toEqual(["referenceKey"]);
});
