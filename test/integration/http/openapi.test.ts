// The OpenAPI document and the API agree: every answer below is checked against the document, and every status in the
// document occurs.

import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createAccessControl, hashCredential } from "../../../src/auth/access-control.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { createOpenApiDocument } from "../../../src/gateway/http/openapi.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { withTraits } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { startGateway } from "../../support/gateway-fixture.ts";
import type { RecordedExchange, RequestOptions } from "../../support/http-fixture.ts";
import {
  cleanUpAfterEach,
  observeResponses,
  onCleanup,
  openRequest,
  post,
  request,
  startHttpServer,
} from "../../support/http-fixture.ts";
import { findSchemaFaults } from "../../support/json-schema.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { openWatches, parseRawAddress } from "../../support/raw-client.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

// biome-ignore lint/suspicious/noExplicitAny: a document
const api = createOpenApiDocument("0.1.0") as any;
const OPERATIONS: readonly (readonly [method: string, path: string])[] = Object.entries<object>(api.paths).flatMap(
  ([path, item]) => Object.keys(item).map((method) => [method.toUpperCase(), path] as const),
);
const POST_PATHS = OPERATIONS.filter(([method]) => method === "POST").map(([, path]) => path);
const metStatuses = new Set<string>();

/** Every answer is one of those documented for its operation. */
function checkExchange({ method, path, status, headers, text }: RecordedExchange): void {
  const operation = api.paths[path.split("?")[0] as string]?.[method.toLowerCase()];
  if (operation === undefined) return;
  const response = operation.responses[status] ?? operation.responses.default;
  if (operation.responses[status] !== undefined) metStatuses.add(`${method} ${path.split("?")[0]} ${status}`);
  const [type] = (headers["content-type"] ?? "").split(";");
  const content = response.content[type as string];
  expect([method, path, status, type, content === undefined]).toEqual([method, path, status, type, false]);
  if (type?.endsWith("json") && content.schema !== undefined) {
    expect(findSchemaFaults(JSON.parse(text), content.schema, api)).toEqual([]);
  }
}
observeResponses(checkExchange);

const AUTHORIZED = { credential: "x" };

test("the document has exactly the existing routes", async () => {
  const { url } = await startHttpServer();
  const { json } = await request(url, "/v1/openapi.json");
  expect(json).toEqual(JSON.parse(JSON.stringify(api)));
  for (const [method, path] of OPERATIONS) {
    const { headers } = await request(url, path, { method: "OPTIONS" });
    expect([path, headers.allow]).toEqual([path, method === "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS"]);
  }
});

test("the examples fit their own schemas", () => {
  for (const path of POST_PATHS) {
    const { schema, example } = api.paths[path].post.requestBody.content["application/json"];
    expect([path, findSchemaFaults(example, schema, api)]).toEqual([path, []]);
  }
});

test("valid requests are answered as documented", async () => {
  const { url } = await startHttpServer();
  const example = (path: string): object => api.paths[path].post.requestBody.content["application/json"].example;
  const held = await post(url, "/v1/claims", example("/v1/claims"));
  const busyResponse = await post(url, "/v1/claims", { key: "invoice:42", wait: 0 });
  const waiting = await post(url, "/v1/claims", { key: "invoice:42", wait: 1 });
  const waitingPoll = await post(url, "/v1/claims/wait", { reference: waiting.json.reference, wait: 1 });
  const listResponse = await request(url, "/v1/locks?prefix=invoice:&limit=10");
  const renewResponse = await post(url, "/v1/claims/renew", { reference: held.json.reference });
  const releaseResponse = await post(url, "/v1/claims/release", { reference: held.json.reference });
  const secondRelease = await post(url, "/v1/claims/release", { reference: held.json.reference });
  const lateResponse = await post(url, "/v1/claims/renew", { reference: held.json.reference });
  const granted = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  const { token } = granted.json;
  const revokeResponse = await post(url, "/v1/locks/revoke", { key: "invoice:42", token, reason: "why" });
  const absentRevoke = await post(url, "/v1/locks/revoke", { key: "invoice:42", token: "1", reason: "why" });
  const lostResponse = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  const answers = [
    held,
    busyResponse,
    waiting,
    waitingPoll,
    listResponse,
    renewResponse,
    releaseResponse,
    secondRelease,
    lateResponse,
    granted,
    revokeResponse,
    absentRevoke,
    lostResponse,
  ];
  expect(answers.map(({ status }) => status)).toEqual([
    201, 409, 202, 202, 200, 200, 200, 409, 409, 201, 200, 409, 409,
  ]);
  for (const path of ["/health", "/ready", "/metrics", "/v1/openapi.json"]) {
    expect([path, (await request(url, path)).status]).toEqual([path, 200]);
  }
  const stream = await openRequest(url, "/events");
  checkExchange({
    method: "GET",
    path: "/events",
    status: stream.statusCode as number,
    headers: stream.headers,
    text: "",
  });
  stream.destroy();
});

test("every refusal of a request is a documented one", async () => {
  const { url, addresses } = await startHttpServer({ access: createAccessControl([makeAccount("x", [])]) });
  const page: RequestOptions = { headers: { origin: "https://evil.example" } };
  for (const [method, path] of OPERATIONS) {
    const body = method === "POST" ? { body: {} } : {};
    expect((await request(url, path, { method, ...body, ...page })).status).toBe(403);
    if (api.paths[path][method.toLowerCase()].responses[401] !== undefined) {
      expect((await request(url, path, { method, ...body })).status).toBe(401);
    }
  }
  for (const path of POST_PATHS) {
    expect((await post(url, path, {}, AUTHORIZED)).status).toBe(400);
    expect((await post(url, path, {}, { ...AUTHORIZED, headers: { "content-type": "text/plain" } })).status).toBe(415);
    const long = await post(url, path, undefined, {
      ...AUTHORIZED,
      raw: "",
      headers: { "content-length": "1000000" },
    }).catch((error: Error) => error);
    expect(long).toMatchObject({ status: 413 });
  }
  for (const path of ["/v1/locks?limit=x", "/events?prefix=%00"])
    expect((await request(url, path, AUTHORIZED)).status).toBe(400);
  await openWatches(parseRawAddress(addresses[0] as string), 250, { credential: "x" });
  expect((await request(url, "/events", AUTHORIZED)).status).toBe(429);
});

function makeAccount(credential: string, rules: Parameters<typeof createAccessControl>[0][number]["rules"]) {
  return { name: credential, hashes: [hashCredential(credential)], rules };
}

test("a full server refuses new claims, and renewals and releases continue", async () => {
  const { url } = await startHttpServer({ limits: { claims: 1 } });
  const held = await post(url, "/v1/claims", { key: "a" });
  expect(await post(url, "/v1/claims", { key: "b" })).toMatchObject({
    status: 429,
    headers: { "retry-after": "1" },
    json: { code: "LIMIT", retryMs: 1_000 },
  });
  expect((await post(url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  expect((await post(url, "/v1/claims/release", { reference: held.json.reference })).status).toBe(200);
});

/** A store that answers until the test stops it. */
function failingStore(overrides: Partial<Driver> = {}): { readonly driver: Driver; broken: boolean } {
  const inner = memory();
  const store = { broken: false, driver: undefined as unknown as Driver };
  const failIfBroken = <T extends unknown[], R>(call: (...args: T) => Promise<R>) => {
    return async (...args: T): Promise<R> => {
      if (store.broken) throw new Error("secret-host:6379 is down");
      return call(...args);
    };
  };
  store.driver = {
    name: "moody",
    open: (events) => inner.open(events),
    claim: failIfBroken((claim) => inner.claim(claim)),
    renew: failIfBroken((claims) => inner.renew(claims)),
    release: failIfBroken((releases) => inner.release(releases)),
    list: failIfBroken((query, options) => inner.list(query, options)),
    close: () => inner.close(),
    ...overrides,
  };
  return store;
}

test("a store that cannot be reached gives 503, and its error message stays in the log", async () => {
  const store = failingStore();
  Object.assign(store.driver, { revoke: async () => Promise.reject(new Error("secret-host:6379 is down")) });
  const { url } = await startGateway({ driver: store.driver });
  const held = await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: 1 });
  store.broken = true;
  for (const [path, body] of [
    ["/v1/claims", { key: "x" }],
    ["/v1/claims/wait", { reference: waiting.json.reference }],
    ["/v1/claims/renew", { reference: held.json.reference }],
    ["/v1/claims/release", { reference: held.json.reference }],
    ["/v1/locks/revoke", { key: "k", token: "5", reason: "why" }],
  ] as const) {
    const refusal = await post(url, path, body);
    expect([path, refusal.status, refusal.json.code]).toEqual([path, 503, "STORE"]);
    expect(refusal.text).not.toContain("secret-host");
  }
  expect((await request(url, "/v1/locks")).status).toBe(503);
  store.broken = false;
  expect((await post(url, "/v1/claims/release", { reference: held.json.reference })).status).toBe(200);
});

test("a request that the store behind the server cannot carry out gives 501", async () => {
  const inner = memory();
  const { url } = await startGateway({
    driver: failingStore(withTraits(inner, { lease: { claim: false, sessionMs: 5_000 } })).driver,
  });
  const refusal = await post(url, "/v1/claims", { key: "k" });
  expect(refusal).toMatchObject({ status: 501, json: { code: "UNSUPPORTED" } });
  expect(refusal.json.detail).toContain("ends locks with their session");
  const revokeResponse = await post(url, "/v1/locks/revoke", { key: "k", token: "5", reason: "why" });
  expect(revokeResponse).toMatchObject({ status: 501, json: { code: "UNSUPPORTED" } });
  for (const [traits, body, field] of [
    [{ manyKeys: false }, { keys: ["a", "b"] }, "keys"],
    [{ permits: "one" as const }, { key: "a", mode: "shared" }, "mode"],
    [{ permits: "shared" as const }, { key: "a", limit: 3 }, "mode"],
  ] as const) {
    const limitedServer = await startGateway({ driver: failingStore(withTraits(inner, traits)).driver });
    expect((await post(limitedServer.url, "/v1/claims", body)).json).toMatchObject({ status: 501, field });
  }
});

test("/ready gives the reason when a store does not answer or a state cannot be written; /health stays 200", async () => {
  const clock = new FakeClock();
  const broken = failingStore({ renew: () => Promise.reject(new Error("connection refused")) });
  const relay = await startGateway({ driver: broken.driver, clock });
  expect((await request(relay.url, "/ready")).status).toBe(200);
  await clock.advance(2_000);
  await request(relay.url, "/ready");
  const store = await request(relay.url, "/ready");
  expect(store).toMatchObject({ status: 503, json: { code: "NOT_READY", reason: "store" } });
  expect(store.json.detail).toContain("cannot be reached");

  const server = await startHttpServer();
  expect(await request(server.url, "/ready")).toMatchObject({ status: 200, json: { ready: true } });
  // directories in place of its files: even root cannot replace them
  const journal = join(server.dir, "state", "journal");
  rmSync(journal, { force: true });
  for (const path of [journal, `${journal}.new`]) mkdirSync(path);
  expect((await post(server.url, "/v1/claims", { key: "k", ttl: "2m" })).status).toBeGreaterThanOrEqual(500);
  const state = await request(server.url, "/ready");
  expect(state).toMatchObject({ status: 503, json: { code: "NOT_READY", reason: "store" } });
  expect(state.json.detail).toContain("state directory is not writable");
  for (const { url } of [relay, server]) expect((await request(url, "/health")).status).toBe(200);
});

test("a recovering server reports it: nothing new is granted, and it is not ready", async () => {
  const { url } = await startHttpServer({ state: "none" });
  expect(await request(url, "/ready")).toMatchObject({
    status: 503,
    json: { code: "NOT_READY", reason: "reclaiming", detail: expect.stringContaining("60 s") },
  });
  const busyResponse = await post(url, "/v1/claims", { key: "k", wait: 0 });
  expect(busyResponse.json).toMatchObject({ status: 503, code: "PAUSED", reason: "recovery" });
  expect(busyResponse.json.retryMs).toBeGreaterThan(50_000);
  const waiting = await post(url, "/v1/claims", { key: "k", wait: 1 });
  expect(waiting).toMatchObject({ status: 202, json: { paused: { reason: "recovery" } } });
  const long = await post(url, "/v1/claims", { key: "k", ttl: "2m" });
  expect(long).toMatchObject({ status: 501, json: { code: "UNSUPPORTED" } });
});

test("during a shutdown /ready is 503 draining, /health is still 200, and every change of a lock is refused", async () => {
  const store = memory();
  let resume = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    resume = resolve;
  });
  onCleanup(resume);
  const driver = { ...store, close: () => gate.then(() => store.close()) };
  const { url, close } = await startGateway({ driver });
  const { reference } = (await post(url, "/v1/claims", { key: "k" })).json;
  const waiting = post(url, "/v1/claims", { key: "k", wait: "20s" });
  await until(async () => (await request(url, "/v1/locks")).json.locks.length === 2, {
    within: 5_000,
    what: "the waiter",
  });
  expect((await request(url, "/ready")).status).toBe(200);
  const closed = close();
  // a waiting request is answered at once, with a reference to continue with
  expect(await waiting).toMatchObject({ status: 202, headers: { connection: "close" } });
  const ready = await request(url, "/ready");
  expect(ready).toMatchObject({ status: 503, json: { code: "NOT_READY", reason: "draining" } });
  expect(ready.json.detail).toBe("the gateway is stopping");
  expect(await request(url, "/health")).toMatchObject({ status: 200, json: { status: "ok" } });
  expect((await request(url, "/metrics")).status).toBe(200);
  const refusal = { status: 503, json: { code: "DRAINING", reason: "draining" }, headers: { "retry-after": "1" } };
  expect(await post(url, "/v1/claims", { key: "other", wait: 0 })).toMatchObject(refusal);
  expect(await post(url, "/v1/claims/wait", { reference: (await waiting).json.reference })).toMatchObject(refusal);
  // a remaining time given now would soon be wrong: the table is being saved
  expect(await post(url, "/v1/claims/renew", { reference })).toMatchObject(refusal);
  expect(await post(url, "/v1/claims/release", { reference })).toMatchObject(refusal);
  expect(await post(url, "/v1/locks/revoke", { key: "k", token: "1", reason: "test" })).toMatchObject(refusal);
  expect(await request(url, "/v1/locks")).toMatchObject(refusal);
  expect(await request(url, "/events")).toMatchObject(refusal);
  resume();
  await closed;
  await expect(request(url, "/health")).rejects.toThrow("ECONNREFUSED");
});

test("every status in the document occurred above", () => {
  const documented = OPERATIONS.flatMap(([method, path]) =>
    Object.keys(api.paths[path][method.toLowerCase()].responses)
      .filter((status) => status !== "default")
      .map((status) => `${method} ${path} ${status}`),
  );
  expect(documented.filter((it) => !metStatuses.has(it))).toEqual([]);
});
