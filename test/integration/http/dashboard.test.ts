// The routes below /ui, as browsers and attackers use them: sessions, rights, changes, and what the views receive.

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import type { AccessControl } from "../../../src/auth/access-control.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { DashboardSettings } from "../../../src/gateway/dashboard/dashboard.ts";
import type { DashboardEvent } from "../../../src/gateway/dashboard/view-types.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";
import type { TestGateway } from "../../support/gateway-fixture.ts";
import { startGateway } from "../../support/gateway-fixture.ts";
import type { HttpResponse, RequestOptions } from "../../support/http-fixture.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  onCleanup,
  openRequest,
  post,
  request,
  startHttpServer,
} from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { startServer } from "../../support/server-fixture.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

interface Site extends TestGateway {
  /** A client of the same store. */
  readonly locks: Locks;
}

async function startDashboard(
  dashboard: DashboardSettings = {},
  access?: AccessControl,
  store: MemoryStore = memoryStore(),
): Promise<Site> {
  const locks = createLocks(memory({ store }), { label: "worker" });
  onCleanup(() => locks.close());
  const gateway = await startGateway({
    driver: memory({ store }),
    dashboard: { hasStartTokens: true, ...dashboard },
    ...(access !== undefined && { access }),
  });
  return { ...gateway, locks };
}

const startTokenOf = ({ createLink }: Pick<TestGateway, "createLink">): string =>
  createLink().replace(/^.*#start=/, "");

interface Browser {
  get(path: string, headers?: Record<string, string>): Promise<HttpResponse>;
  /** As the pages send it: with Origin and secret, unless `headers` has others. */
  change(path: string, options?: RequestOptions): Promise<HttpResponse>;
  readonly headers: Readonly<Record<string, string>>;
}

async function signIn(url: string, body: object): Promise<Browser> {
  const { status, json, headers } = await post(url, "/ui/session", body, { headers: { origin: url } });
  expect(status).toBe(200);
  const cookie = String(headers["set-cookie"]).replace(/;.*$/, "");
  const all = { cookie, origin: url, "holdfast-ui": json.secret as string };
  return {
    headers: all,
    get: (path, extra = {}) => request(url, path, { headers: { ...all, ...extra } }),
    change: (path, options = {}) =>
      request(url, path, { method: "POST", ...options, headers: { ...all, ...options.headers } }),
  };
}

test("a start token opens one session; a replayed, a late or a made-up one opens none", async () => {
  const site = await startDashboard();
  const start = startTokenOf(site);
  const browser = await signIn(site.url, { start });
  expect(await browser.get("/ui/api/overview")).toMatchObject({
    status: 200,
    json: { store: "memory", account: "", canRevoke: true, seesAllKeys: true },
  });
  for (const token of [start, "x".repeat(52), ""]) {
    expect(await post(site.url, "/ui/session", { start: token }, { headers: { origin: site.url } })).toMatchObject({
      status: 401,
      json: { code: "AUTH", reason: "start" },
    });
  }
});

test("the cookie is for /ui alone, is not readable for scripts, and is not sent by foreign pages", async () => {
  const site = await startDashboard();
  const { headers } = await post(
    site.url,
    "/ui/session",
    { start: startTokenOf(site) },
    { headers: { origin: site.url } },
  );
  const port = new URL(site.url).port;
  expect(headers["set-cookie"]).toEqual([
    expect.stringMatching(
      new RegExp(`^holdfast-${port}=[a-z2-7]{52}; Max-Age=43200; Path=/ui; HttpOnly; SameSite=Strict$`),
    ),
  ]);
});

test("without a session nothing about locks is served, on loopback too: neither by the pages nor by the API", async () => {
  const site = await startDashboard();
  await site.locks.acquire("secret-key");
  for (const path of ["overview", "claims?prefix=", "history", "store", "events", "unknown"])
    expect((await request(site.url, `/ui/api/${path}`)).status).toBe(path === "unknown" ? 404 : 401);
  for (const path of ["/v1/locks", "/events", "/metrics"])
    expect(await request(site.url, path)).toMatchObject({ status: 401, json: { code: "AUTH" } });
  expect(await post(site.url, "/v1/claims", { key: "k" })).toMatchObject({ status: 401 });
  expect((await request(site.url, "/health")).status).toBe(200);
  expect(await request(site.url, "/ui/session/methods")).toMatchObject({ status: 200, json: { accounts: false } });
});

test("a gateway without accounts and start tokens has pages that no one can open, and its API as ever", async () => {
  const site = await startDashboard({ hasStartTokens: false });
  expect(site.createLink()).toBe(`${site.url}/ui`);
  expect((await request(site.url, "/v1/locks")).status).toBe(200);
  expect((await request(site.url, "/ui/api/claims?prefix=")).status).toBe(401);
});

test("a form, a foreign page, a foreign name, and a program without the secret change nothing", async () => {
  const site = await startDashboard();
  const lock = await site.locks.acquire("k");
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  const body = { key: "k", token: String(lock.token), reason: "test" };
  const { cookie, origin } = browser.headers as { cookie: string; origin: string };
  const form = "key=k&reason=test";
  const attempts: readonly (readonly [number, RequestOptions])[] = [
    [415, { raw: form, headers: { ...browser.headers, "content-type": "application/x-www-form-urlencoded" } }],
    [401, { raw: form, headers: { cookie, origin, "content-type": "application/x-www-form-urlencoded" } }],
    [403, { body, headers: { ...browser.headers, origin: "http://evil.example" } }],
    [403, { body, headers: { ...browser.headers, origin: "null" } }],
    [403, { body, headers: { ...browser.headers, host: "rebound.example:7421" } }],
    [403, { body, headers: { ...browser.headers, "sec-fetch-site": "cross-site" } }],
    [403, { body, headers: { ...browser.headers, "sec-fetch-site": "same-site" } }],
    // another program of this machine that got the cookie, which browsers send to all ports
    [401, { body, headers: { cookie, origin } }],
    [401, { body, headers: { cookie, origin, "holdfast-ui": "x" } }],
    [403, { body, headers: { cookie, "holdfast-ui": browser.headers["holdfast-ui"] as string } }],
    [401, { body, headers: { origin, "holdfast-ui": browser.headers["holdfast-ui"] as string } }],
  ];
  for (const [status, options] of attempts)
    expect((await request(site.url, "/ui/api/revoke", { method: "POST", ...options })).status).toBe(status);
  const foreign = { headers: { origin: "http://evil.example" } };
  expect((await post(site.url, "/ui/session", { start: startTokenOf(site) }, foreign)).status).toBe(403);
  expect(lock.signal.aborted).toBe(false);
});

test("a link in a foreign page opens a page of the dashboard, and nothing else", async () => {
  const site = await startDashboard();
  const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  for (const path of ["/ui", "/ui/k/job%2F1", "/ui?q=a", "/ui/store"]) {
    const { status, headers } = await request(site.url, path, { headers: link });
    expect([path, status, headers["content-type"]]).toEqual([path, 200, "text/html; charset=utf-8"]);
    expect(headers["content-security-policy"]).toContain("script-src 'self'");
    expect(headers["content-security-policy"]).not.toContain("unsafe");
  }
  for (const path of [
    "/ui/%61pi/claims?prefix=",
    "/ui/api/claims?prefix=",
    "/ui/session/methods",
    "/v1/locks",
    "/uix",
    "/metrics",
  ])
    expect((await request(site.url, path, { headers: link })).status).toBe(403);
  const framed = { ...link, "sec-fetch-dest": "iframe" };
  expect((await request(site.url, "/ui", { headers: framed })).status).toBe(403);
});

test("a revocation: the holder loses the lock, the event says by whom and why, and the log has it", async () => {
  const site = await startDashboard();
  const lock = await site.locks.acquire("k");
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  const { json: before } = await browser.get("/ui/api/claims?key=k");
  expect(before.claims).toMatchObject([{ state: "held", label: "worker", token: String(lock.token), leaseMs: 30_000 }]);
  const body = { key: "k", token: before.claims[0].token, reason: "its host is gone" };
  expect(await browser.change("/ui/api/revoke", { body })).toMatchObject({ status: 200, json: {} });
  await until(() => lock.signal.aborted, { within: 30_000, what: "the loss of the lock" });
  expect(await browser.change("/ui/api/revoke", { body: { ...body, token: "5" } })).toMatchObject({
    status: 409,
    json: { code: "NOT_HELD" },
  });
  const event = await readEvent(browser, site.url, "revoked");
  expect(event).toMatchObject({
    kind: "revoked",
    keys: ["k"],
    label: "worker",
    reason: "its host is gone",
    source: "reported",
  });
  expect(site.logged.some((line) => line.includes("revoked"))).toBe(true);
}, 40_000);

test("the cookie alone reads nothing, a foreign cookie of the same name does no harm, and each address has its own", async () => {
  const site = await startDashboard();
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  const { cookie, "holdfast-ui": secret } = browser.headers as Record<string, string>;
  const read = async (headers: Record<string, string>): Promise<number> =>
    (await request(site.url, "/ui/api/claims?prefix=", { headers })).status;
  expect(await read({ cookie: cookie as string })).toBe(401);
  const name = (cookie as string).replace(/=.*/, "");
  expect(await read({ cookie: `${name}=poison; ${cookie}`, "holdfast-ui": secret as string })).toBe(200);
  // as through a forwarded port: the browser keeps cookies by host, whatever the port is
  const { port } = new URL(site.url);
  const body = { start: startTokenOf(site) };
  const headers = { host: "127.0.0.1:9999", origin: "http://127.0.0.1:9999" };
  const forwarded = await post(site.url, "/ui/session", body, { headers });
  expect(String(forwarded.headers["set-cookie"])).toMatch(/^holdfast-9999=/);
  expect(name).toBe(`holdfast-${port}`);
});

test("an account learns nothing about keys that it may not see from what a search finds", async () => {
  const team = testAccount("team", "team/", ["acquire", "inspect"]);
  const store = memoryStore();
  const site = await startDashboard({}, createTestAccess(team), store);
  const lock = await site.locks.all("team/a", "secret/b").acquire();
  const browser = await signIn(site.url, { credential: team.credential });
  for (const query of ["prefix=secret/", "key=secret/b", "prefix=s"]) {
    expect((await browser.get(`/ui/api/claims?${query}`)).json.claims).toEqual([]);
    const listed = await request(site.url, `/v1/locks?${query}`, { credential: team.credential });
    expect([query, listed.json.locks]).toEqual([query, []]);
  }
  const { json } = await browser.get("/ui/api/claims?prefix=team/");
  expect(json.claims).toMatchObject([{ locks: [{ key: "team/a" }] }]);
  await lock.release();
});

test("behind a proxy with TLS, whose name the gateway knows, its pages may sign in", async () => {
  const gateway = await startGateway({
    driver: memory({ store: memoryStore() }),
    dashboard: { hasStartTokens: true },
    httpNames: ["locks.example.org"],
  });
  const host = "locks.example.org";
  const signInFrom = async (origin: string): Promise<number> => {
    const body = { start: startTokenOf(gateway) };
    return (await post(gateway.url, "/ui/session", body, { headers: { host, origin } })).status;
  };
  expect(await signInFrom("https://locks.example.org")).toBe(200);
  for (const origin of ["https://evil.example", "https://locks.example.org:444", "ftp://locks.example.org"])
    expect(await signInFrom(origin)).toBe(403);
});

test("read-only: the pages show why there is no revocation, and the request is refused", async () => {
  const site = await startDashboard({ isReadOnly: true });
  const lock = await site.locks.acquire("k");
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  expect((await browser.get("/ui/api/overview")).json).toMatchObject({
    canRevoke: false,
    revokeRefusal: expect.stringContaining("--read-only"),
  });
  const body = { key: "k", token: String(lock.token), reason: "test" };
  expect(await browser.change("/ui/api/revoke", { body })).toMatchObject({ status: 403, json: { code: "FORBIDDEN" } });
  expect(lock.signal.aborted).toBe(false);
});

test("with accounts a credential opens a session, which sees and revokes what the account may", async () => {
  const [team, all] = [testAccount("team", "team/", ["inspect"]), testAccount("all")];
  const access = createTestAccess(team, all);
  const site = await startDashboard({}, access);
  expect(site.createLink()).toBe(`${site.url}/ui`);
  const lock = await site.locks.acquire("team/a");
  await site.locks.acquire("other");
  for (const body of [{ credential: "hf1_wrong" }, { start: "x" }, { credential: "" }])
    expect((await post(site.url, "/ui/session", body, { headers: { origin: site.url } })).status).toBe(401);
  const browser = await signIn(site.url, { credential: team.credential });
  const { json } = await browser.get("/ui/api/claims?prefix=");
  expect(json.claims.flatMap(({ locks }: { locks: { key: string }[] }) => locks)).toMatchObject([{ key: "team/a" }]);
  expect((await browser.get("/ui/api/overview")).json).toMatchObject({ account: "team", seesAllKeys: false });
  expect((await browser.get("/ui/api/claims?key=team/a")).json.revokeRefusal).toContain("may not");
  const body = { key: "team/a", token: String(lock.token), reason: "test" };
  expect((await browser.change("/ui/api/revoke", { body })).status).toBe(403);
  expect((await browser.get("/ui/api/history")).json).toMatchObject({ samples: [], waits: null });
  const operator = await signIn(site.url, { credential: all.credential });
  expect((await operator.get("/ui/api/claims?prefix=")).json.claims).toHaveLength(2);
  expect((await operator.change("/ui/api/revoke", { body })).status).toBe(200);
  access.replace([team.account]);
  expect((await operator.get("/ui/api/overview")).status).toBe(401);
  expect((await browser.get("/ui/api/overview")).status).toBe(200);
  // the API is that of a gateway with accounts
  expect((await request(site.url, "/v1/locks", { credential: team.credential })).status).toBe(200);
});

test("too many wrong credentials of one address are refused for a while", async () => {
  const site = await startDashboard({}, createTestAccess(testAccount("ana")));
  const statuses = new Set<number>();
  for (let count = 0; count < 102; count++)
    statuses.add((await post(site.url, "/ui/session", { credential: "x" }, { headers: { origin: site.url } })).status);
  expect([...statuses]).toEqual([401, 429]);
});

test("signing out ends the session", async () => {
  const site = await startDashboard();
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  expect((await browser.change("/ui/session", { method: "DELETE" })).status).toBe(204);
  expect((await browser.get("/ui/api/overview")).status).toBe(401);
});

test("a reading that has not changed is not sent again; bad queries are refused", async () => {
  const site = await startDashboard();
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  const { json } = await browser.get("/ui/api/claims?prefix=");
  expect(json).toMatchObject({ claims: [], isComplete: true, failure: null, paused: null, intervalMs: 2_000 });
  expect((await browser.get(`/ui/api/claims?prefix=&after=${json.sequence}`)).status).toBe(204);
  for (const query of [
    "key=%00",
    "prefix=%00",
    "key=",
    `key=${"k".repeat(513)}`,
    "key=a&prefix=a",
    "unknown=1",
    "prefix=%ff",
    "prefix=a&prefix=b",
  ])
    expect((await browser.get(`/ui/api/claims?${query}`)).status).toBe(400);
  for (const raw of ["{}", '{"start":1}', '{"start":"a","credential":"b"}', "[]", "{", '{"start":"a","start":"b"}'])
    expect((await post(site.url, "/ui/session", undefined, { raw, headers: { origin: site.url } })).status).toBe(400);
});

test("a lock server has the pages too, with all of its events", async () => {
  const ana = testAccount("ana");
  const server = await startHttpServer({ access: createTestAccess(ana) });
  const browser = await signIn(server.url, { credential: ana.credential });
  const held = await post(server.url, "/v1/claims", { key: "k", label: "job" }, { credential: ana.credential });
  expect(held.status).toBe(201);
  await until(async () => (await browser.get("/ui/api/claims?prefix=")).json.claims.length === 1, {
    within: 10_000,
    what: "the lock in the list",
  });
  const event = await readEvent(browser, server.url, "granted");
  expect(event).toMatchObject({ kind: "granted", keys: ["k"], label: "job", account: "ana", source: "reported" });
  const { token } = held.json;
  const body = { key: "k", token, reason: "test" };
  expect((await browser.change("/ui/api/revoke", { body })).status).toBe(200);
  expect(await readEvent(browser, server.url, "revoked")).toMatchObject({
    operator: "ana",
    reason: "test",
    label: "job",
  });
  expect((await browser.get("/ui/api/history")).json).toMatchObject({
    origin: "server",
    waits: { counts: expect.any(Array) },
  });
});

test("while a lock server recovers, its own pages and those of a gateway in front of it say until when", async () => {
  const ana = testAccount("ana");
  const server = await startHttpServer({ state: "none", access: createTestAccess(ana) });
  const own = await signIn(server.url, { credential: ana.credential });
  const driver = lockServer({ path: server.path, credential: ana.credential });
  const gateway = await startGateway({ driver, dashboard: { hasStartTokens: true } });
  const other = await signIn(gateway.url, { start: startTokenOf(gateway) });
  for (const browser of [own, other]) {
    const paused = async () => (await browser.get("/ui/api/claims?prefix=")).json.paused;
    await until(async () => (await paused()) !== null, { within: 10_000, what: "the pause" });
    const { reason, remainingMs } = await paused();
    expect(reason).toBe("recovery");
    expect(remainingMs).toBeGreaterThan(30_000);
    expect(remainingMs).toBeLessThanOrEqual(60_000);
  }
});

test("a grace period is known from the answer to a claim over HTTP", async () => {
  const ana = testAccount("ana");
  const pausing = delegate(memory({ store: memoryStore() }), {
    claim: async () => ({ state: "none", paused: { reason: "gracePeriod", remainingMs: 20_000 } }),
  });
  const gateway = await startGateway({ driver: pausing, access: createTestAccess(ana) });
  const browser = await signIn(gateway.url, { credential: ana.credential });
  expect((await browser.get("/ui/api/claims?prefix=")).json.paused).toBeNull();
  const refused = await post(gateway.url, "/v1/claims", { key: "k", wait: 0 }, { credential: ana.credential });
  expect(refused).toMatchObject({ status: 503, json: { code: "PAUSED" } });
  const { paused } = (await browser.get("/ui/api/claims?prefix=")).json;
  expect(paused.reason).toBe("gracePeriod");
  expect(paused.remainingMs).toBeGreaterThan(10_000);
});

test("a lock server that was down when the first viewer came tells its events when it is there", async () => {
  const folder = createTemporaryDirectory();
  const first = await startServer({ in: folder });
  const site = await startGateway({
    driver: lockServer({ path: first.path }),
    dashboard: { hasStartTokens: true },
  });
  await first.close();
  const browser = await signIn(site.url, { start: startTokenOf(site) });
  expect((await browser.get("/ui/api/claims?prefix=")).status).toBe(503);
  const second = await startServer({ in: folder });
  const locks = createLocks(lockServer({ path: second.path }), { label: "late" });
  onCleanup(() => locks.close());
  const found = readEvent(browser, site.url, "granted");
  await until(
    async () => {
      await locks.using("k", {}, async () => undefined);
      return await Promise.race([found, delay(500)]);
    },
    { within: 30_000, what: "an event" },
  );
  expect(await found).toMatchObject({ label: "late", source: "reported" });
}, 60_000);

/** The first event of this kind in the stream. */
async function readEvent({ headers }: Browser, url: string, kind: string): Promise<DashboardEvent> {
  const answer = await openRequest(url, "/ui/api/events", { headers });
  let text = "";
  for await (const chunk of answer.setEncoding("utf8")) {
    text += chunk as string;
    const batches = [...text.matchAll(/event: events\ndata: (.*)\n\n/g)];
    const events = batches.flatMap(([, data]) => JSON.parse(data as string) as DashboardEvent[]);
    const found = events.find((event) => event.kind === kind);
    if (found === undefined) continue;
    answer.destroy();
    return found;
  }
  throw new Error("the stream has ended");
}
