// A lock used with nothing but HTTP: acquire, wait, renew and release, from any number of processes.

import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cleanUpAfterEach, openRequest, post, request, startHttpServer } from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const UNTIL_EXPIRED = { within: 3_000, what: "" };

test("a free lock is granted at once, with a reference and a rising token", async () => {
  const { url } = await startHttpServer();
  const first = await post(url, "/v1/claims", { key: "invoice:42", ttl: "10s" });
  expect(first.status).toBe(201);
  expect(first.json).toMatchObject({ state: "held", keys: ["invoice:42"] });
  // the time left when the answer was made
  expect(first.json.remainingMs).toBeLessThanOrEqual(10_000);
  expect(first.json.remainingMs).toBeGreaterThan(1_000);
  expect(await post(url, "/v1/claims/release", { reference: first.json.reference })).toMatchObject({
    status: 200,
    json: { state: "released", tag: first.json.tag, keys: ["invoice:42"] },
  });
  const second = await post(url, "/v1/claims", { key: "invoice:42" });
  expect(BigInt(second.json.token)).toBeGreaterThan(BigInt(first.json.token));
  expect(second.json.tag).not.toBe(first.json.tag);
});

test("a request that does not wait gets 409 with the holder's label for a busy lock, and leaves no queue entry", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k", label: "nightly report" });
  const busyResponse = await post(url, "/v1/claims", { key: "k", wait: 0 });
  expect(busyResponse).toMatchObject({
    status: 409,
    headers: { "content-type": "application/problem+json" },
    json: { code: "BUSY", reason: "held", holder: "nightly report", status: 409 },
  });
  expect(stats().claims).toBe(1);
});

test("a waiting claim is granted when the holder releases, in order of arrival", async () => {
  const { url, stats } = await startHttpServer();
  const held = await post(url, "/v1/claims", { key: "k" });
  const order: string[] = [];
  const waiters: Promise<void>[] = [];
  for (const [index, name] of ["a", "b", "c"].entries()) {
    waiters.push(
      post(url, "/v1/claims", { key: "k", label: name }).then(async (answer) => {
        expect(answer.status).toBe(201);
        order.push(name);
        await post(url, "/v1/claims/release", { reference: answer.json.reference });
      }),
    );
    await until(() => stats().claims === index + 2, { ...UNTIL_EXPIRED, what: "the next place" });
  }
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  await Promise.all(waiters);
  expect(order).toEqual(["a", "b", "c"]);
});

test("a wait that times out gets a reference, keeps its place, and can continue", async () => {
  const { url } = await startHttpServer();
  const holder = await post(url, "/v1/claims", { key: "k" });
  const started = performance.now();
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "150ms" });
  expect(performance.now() - started).toBeGreaterThan(140);
  expect(waiting).toMatchObject({ status: 202, json: { state: "waiting", graceMs: 10_000 } });
  const laterResponse = await post(url, "/v1/claims", { key: "k", wait: "20ms" });
  expect(laterResponse.status).toBe(202);
  // it came first, and is granted first, although neither had a request open for a moment
  const first = post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  const second = post(url, "/v1/claims/wait", { reference: laterResponse.json.reference });
  await post(url, "/v1/claims/release", { reference: holder.json.reference });
  const granted = await first;
  expect(granted).toMatchObject({ status: 201, json: { tag: waiting.json.tag, state: "held" } });
  await post(url, "/v1/claims/release", { reference: granted.json.reference });
  expect(await second).toMatchObject({ status: 201, json: { tag: laterResponse.json.tag } });
});

test("a wait whose answer was lost can be repeated: it gets the same lock", async () => {
  const { url } = await startHttpServer();
  const holder = await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "10ms" });
  await post(url, "/v1/claims/release", { reference: holder.json.reference });
  const firstPoll = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  const secondPoll = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect(firstPoll.status).toBe(201);
  expect(secondPoll.json).toEqual({ ...firstPoll.json, remainingMs: expect.any(Number) });
});

test("of two requests that wait with one reference the newer one gets the lock, and the older one is answered", async () => {
  const { url } = await startHttpServer();
  const holder = await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "10ms" });
  const older = post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  await until(async () => (await request(url, "/v1/locks")).json.locks.length === 2, {
    ...UNTIL_EXPIRED,
    what: "the place",
  });
  const newer = post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect(await older).toMatchObject({ status: 202, json: { reference: waiting.json.reference } });
  await post(url, "/v1/claims/release", { reference: holder.json.reference });
  expect((await newer).status).toBe(201);
});

test("a client that closes its connection while it waits leaves no queue entry", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const abort = new AbortController();
  const abortedRequest = openRequest(url, "/v1/claims", { method: "POST", body: { key: "k" }, signal: abort.signal });
  await until(() => stats().claims === 2, { ...UNTIL_EXPIRED, what: "its place" });
  abort.abort();
  await expect(abortedRequest).rejects.toThrow();
  await until(() => stats().claims === 1, { ...UNTIL_EXPIRED, what: "the end of its place" });
});

test("a waiting claim can be released by its reference, and its request is answered", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "10ms" });
  const watching = post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  await until(async () => (await request(url, "/v1/locks")).json.locks.length === 2, {
    ...UNTIL_EXPIRED,
    what: "the place",
  });
  expect((await post(url, "/v1/claims/release", { reference: waiting.json.reference })).status).toBe(200);
  expect(await watching).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "released" } });
  expect(stats().claims).toBe(1);
});

test("a repeated or late release gets the reason, and changes nothing", async () => {
  const { url, stats } = await startHttpServer();
  const response = await post(url, "/v1/claims", { key: "a", ttl: "3s" });
  const two = await post(url, "/v1/claims", { key: "b" });
  await until(() => stats().claims === 1, { within: 8_000, what: "the end of a lease" });
  // the end reason is remembered for one lease
  const otherResponse = await post(url, "/v1/claims", { key: "a" });
  for (const verb of ["renew", "release"]) {
    const refusal = await post(url, `/v1/claims/${verb}`, { reference: response.json.reference });
    expect(refusal).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "expired" } });
  }
  expect((await post(url, "/v1/claims/release", { reference: two.json.reference })).status).toBe(200);
  for (const verb of ["renew", "release"]) {
    const refusal = await post(url, `/v1/claims/${verb}`, { reference: two.json.reference });
    expect(refusal).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "released" } });
  }
  expect(await post(url, "/v1/claims/renew", { reference: otherResponse.json.reference })).toMatchObject({
    status: 200,
  });
});

test("a reference that was altered, cut, or issued by another server is refused, and changes nothing", async () => {
  const localServer = await startHttpServer();
  const otherServer = await startHttpServer();
  const held = await post(localServer.url, "/v1/claims", { key: "k" });
  const reference = held.json.reference as string;
  const malformedReferences = [
    `${reference.slice(0, -1)}${reference.endsWith("_") ? "-" : "_"}`,
    reference.slice(0, 40),
    `wait.${reference}x`,
    "",
    "hf1.e30.x",
    "nonsense",
  ];
  for (const text of malformedReferences) {
    const refusal = await post(localServer.url, "/v1/claims/release", { reference: text });
    expect(refusal).toMatchObject({ status: 400, json: { code: "INVALID", field: "reference", reason: "malformed" } });
    expect(refusal.text).not.toContain("eyJ");
  }
  const foreign = await post(otherServer.url, "/v1/claims/release", { reference });
  expect(foreign).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "unknown" } });
  expect((await post(localServer.url, "/v1/claims/renew", { reference })).status).toBe(200);
});

test("several keys are acquired together, in the order that every client uses", async () => {
  const { url } = await startHttpServer();
  const response = await post(url, "/v1/claims", { keys: ["b", "a", "b"] });
  expect(response.json.keys).toEqual(["a", "b"]);
  expect((await post(url, "/v1/claims", { key: "b", wait: 0 })).json.code).toBe("BUSY");
});

test("readers share a lock, writers do not, and a semaphore admits as many as its permits", async () => {
  const { url } = await startHttpServer();
  const status = async (body: object): Promise<number> => (await post(url, "/v1/claims", { ...body, wait: 0 })).status;
  expect(await status({ key: "config", mode: "shared" })).toBe(201);
  expect(await status({ key: "config", mode: "shared" })).toBe(201);
  expect(await status({ key: "config" })).toBe(409);
  expect(await status({ key: "gpu", limit: 3, permits: 2 })).toBe(201);
  expect(await status({ key: "gpu", limit: 3, permits: 2 })).toBe(409);
  expect(await status({ key: "gpu", limit: 3 })).toBe(201);
  const { locks } = (await request(url, "/v1/locks?prefix=gpu")).json;
  expect(locks.map((it: { locks: unknown }) => it.locks)).toEqual([
    [{ key: "gpu", mode: "semaphore", permits: 2, limit: 3 }],
    [{ key: "gpu", mode: "semaphore", permits: 1, limit: 3 }],
  ]);
});

test("a queue entry without a waiting request is dropped after the grace, and grants pass it by meanwhile", async () => {
  const { url, stats } = await startHttpServer();
  const holder = await post(url, "/v1/claims", { key: "k" });
  const waitingResponse = await post(url, "/v1/claims", { key: "k", wait: "10ms", ttl: "1s" });
  const other = post(url, "/v1/claims", { key: "k" });
  await until(() => stats().claims === 3, { ...UNTIL_EXPIRED, what: "both places" });
  await post(url, "/v1/claims/release", { reference: holder.json.reference });
  // no request waits for the first entry, so the next one is granted
  const granted = await other;
  expect(granted.status).toBe(201);
  // an entry outlives its own short lease meanwhile
  expect(stats().claims).toBe(2);
  const secondPoll = post(url, "/v1/claims/wait", { reference: waitingResponse.json.reference });
  await post(url, "/v1/claims/release", { reference: granted.json.reference });
  expect((await secondPoll).json.tag).toBe(waitingResponse.json.tag);
});

test("locks are listed page by page, by prefix, without ids or references", async () => {
  const { url } = await startHttpServer();
  const references: string[] = [];
  for (let index = 0; index < 7; index++) {
    const { json } = await post(url, "/v1/claims", { key: `job:${index}` });
    references.push(json.reference);
  }
  await post(url, "/v1/claims", { key: "other" });
  const keys: string[] = [];
  let cursor: string | null = null;
  let pages = 0;
  do {
    const page = await request(url, `/v1/locks?prefix=job:&limit=3${cursor === null ? "" : `&cursor=${cursor}`}`);
    expect(page.status).toBe(200);
    keys.push(...page.json.locks.map((it: { locks: { key: string }[] }) => it.locks[0]?.key));
    for (const reference of references) {
      const id = /"([a-z2-7]{26})"/.exec(Buffer.from(reference.split(".")[1] as string, "base64url").toString())?.[1];
      expect(page.text).not.toContain(id);
    }
    cursor = page.json.cursor;
    pages++;
  } while (cursor !== null);
  expect(keys).toEqual(Array.from({ length: 7 }, (_, index) => `job:${index}`));
  expect(pages).toBe(3);
});

test("the queue of one key is listed without keys that have it as a prefix; prefix and key together are refused", async () => {
  const { url, stats } = await startHttpServer();
  const [holder] = await Promise.all(["job", "job:1"].map((key) => post(url, "/v1/claims", { key })));
  const waits = post(url, "/v1/claims", { key: "job" });
  await until(() => stats().claims === 3, { ...UNTIL_EXPIRED, what: "the place" });
  const { status, json } = await request(url, "/v1/locks?key=job");
  expect(status).toBe(200);
  const summary = json.locks.map((it: { state: string; locks: { key: string }[] }) => [it.state, it.locks[0]?.key]);
  expect(summary).toEqual([
    ["held", "job"],
    ["waiting", "job"],
  ]);
  await post(url, "/v1/claims/release", { reference: holder?.json.reference });
  expect((await waits).status).toBe(201);
  const refusal = await request(url, "/v1/locks?key=job&prefix=job");
  expect(refusal).toMatchObject({ status: 400, json: { code: "INVALID" } });
  expect(refusal.text).toContain("prefix or key, not both");
});

test("a list continues although the last lock of its page was released meanwhile", async () => {
  const { url } = await startHttpServer();
  const held = new Map<string, string>();
  for (const key of ["a", "b", "c", "d", "e"]) {
    const { json } = await post(url, "/v1/claims", { key });
    held.set(json.tag, json.reference);
  }
  const keys: string[] = [];
  let cursor: string | null = "";
  // bounded: a list that starts again each time would not end
  while (cursor !== null && keys.length < 20) {
    const page = await request(url, `/v1/locks?limit=2${cursor === "" ? "" : `&cursor=${cursor}`}`);
    keys.push(...page.json.locks.map((it: { locks: { key: string }[] }) => it.locks[0]?.key));
    cursor = page.json.cursor;
    await post(url, "/v1/claims/release", { reference: held.get(page.json.locks.at(-1).tag) });
  }
  expect(keys).toEqual(["a", "b", "c", "d", "e"]);
});

test("a forced release compares the token; the holder is asked to release, or removed at once, and the reason is logged", async () => {
  const server = await startHttpServer();
  const { url } = server;
  const held = await post(url, "/v1/claims", { key: "k" });
  const { token, reference } = held.json;
  const wrongTokenResponse = await post(url, "/v1/locks/revoke", {
    key: "k",
    token: String(BigInt(token) + 1n),
    reason: "why",
  });
  expect(wrongTokenResponse).toMatchObject({ status: 409, json: { code: "NOT_HELD" } });
  expect((await post(url, "/v1/claims/renew", { reference })).status).toBe(200);
  const revokeResponse = await post(url, "/v1/locks/revoke", { key: "k", token, reason: "its host is gone" });
  expect(revokeResponse).toMatchObject({ status: 200, json: { state: "revoked", key: "k", token } });
  expect(server.logged.join("\n")).toContain("its host is gone");
  // it keeps its entry until it is released
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json.code).toBe("BUSY");
  const renewal = await post(url, "/v1/claims/renew", { reference });
  expect(renewal).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "revoked" } });
  const release = await post(url, "/v1/claims/release", { reference });
  expect(release).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "revoked" } });
  // the release still ends the revoked claim
  expect(release.json.detail).toMatch(/it is released now$/);
  const next = await post(url, "/v1/claims", { key: "k", wait: 0 });
  expect(next.status).toBe(201);
  const now = await post(url, "/v1/locks/revoke", { key: "k", token: next.json.token, reason: "at once", now: true });
  expect(now.json.state).toBe("removed");
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).status).toBe(201);
});

test("neither the log nor the operator tools contain a secret", async () => {
  const server = await startHttpServer();
  const held = await post(server.url, "/v1/claims", { key: "k" });
  const id = /"([a-z2-7]{26})"/.exec(
    Buffer.from((held.json.reference as string).split(".")[1] as string, "base64url").toString(),
  )?.[1] as string;
  await post(server.url, "/v1/locks/revoke", { key: "k", token: held.json.token, reason: "why" });
  const publicTexts = [
    (await request(server.url, "/metrics")).text,
    (await request(server.url, "/v1/locks")).text,
    server.logged.join("\n"),
  ];
  expect(publicTexts.join("\n")).not.toContain(id);
  expect(id).toHaveLength(26);
});

test("places in the queue survive a restart of the server, and HTTP counts as no client", async () => {
  const first = await startHttpServer();
  const held = await post(first.url, "/v1/claims", { key: "k" });
  const waiting = post(first.url, "/v1/claims", { key: "k" });
  await until(() => first.stats().claims === 2, { within: 5_000, what: "the waiter" });
  expect(first.stats().sessions).toBe(0);
  await first.close();
  const { reference } = (await waiting).json;
  const second = await startHttpServer({ in: first.dir });
  const next = post(second.url, "/v1/claims/wait", { reference });
  await post(second.url, "/v1/claims/release", { reference: held.json.reference });
  expect(await next).toMatchObject({ status: 201 });
});

test("many requests at a time: none is refused for what the others ask", async () => {
  const { url } = await startHttpServer({ limits: { claimsPerAccount: 5 } });
  await post(url, "/v1/claims", { key: "k" });
  const tries = await Promise.all(Array.from({ length: 40 }, () => post(url, "/v1/claims", { key: "k", wait: 0 })));
  expect(new Set(tries.map(({ json }) => json.code))).toEqual(new Set(["BUSY"]));
  const others = await Promise.all(
    Array.from({ length: 8 }, (_, n) => post(url, "/v1/claims", { key: `other ${n}`, wait: 0 })),
  );
  expect(new Set(others.map(({ status }) => status))).toEqual(new Set([201]));
});
