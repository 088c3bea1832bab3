// Over HTTP a credential sees and changes only what it may; everything else looks as if it did not exist.

import { once } from "node:events";
import { request as secureRequest } from "node:https";
import { connect } from "node:net";
import { expect, test } from "vitest";
import type { AccessControl, Account } from "../../../src/auth/access-control.ts";
import { createAccessControl, hashCredential } from "../../../src/auth/access-control.ts";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { until } from "../../../src/testing/until.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import type { HttpTestServer } from "../../support/http-fixture.ts";
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
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const CANARY = "canary-credential-of-team-a";
const ACCOUNTS: readonly Account[] = [
  { name: "a", hashes: [hashCredential(CANARY)], rules: [{ prefix: "team-a/", rights: ["acquire", "inspect"] }] },
  { name: "b", hashes: [hashCredential("b")], rules: [{ prefix: "team-b/", rights: ["acquire"] }] },
  {
    name: "a-too",
    hashes: [hashCredential("a-too")],
    rules: [{ prefix: "team-a/", rights: ["acquire"] }],
  },
  { name: "ops", hashes: [hashCredential("ops")], rules: [{ prefix: "", rights: ["inspect", "revoke"] }] },
];

async function startSecuredServer(): Promise<HttpTestServer & { readonly access: AccessControl }> {
  const access = createAccessControl(ACCOUNTS);
  const server = await startHttpServer({ access });
  return Object.assign(server, { access });
}

const withCredential = (credential: string): { credential: string } => ({ credential });

test("without a valid credential only health and the API description are served", async () => {
  const { url, logged } = await startSecuredServer();
  for (const credential of [undefined, "wrong"]) {
    for (const path of ["/metrics", "/events", "/v1/locks"]) {
      const refusal = await request(url, path, credential === undefined ? {} : withCredential(credential));
      expect(refusal).toMatchObject({ status: 401, json: { code: "AUTH", reason: "credential" } });
      expect(refusal.headers["www-authenticate"]).toContain("Bearer");
    }
    for (const path of [
      "/v1/claims",
      "/v1/claims/wait",
      "/v1/claims/renew",
      "/v1/claims/release",
      "/v1/locks/revoke",
    ]) {
      const requestOptions = credential === undefined ? {} : withCredential(credential);
      expect((await post(url, path, { key: "team-a/x" }, requestOptions)).status).toBe(401);
    }
  }
  for (const path of ["/health", "/ready", "/v1/openapi.json"]) expect((await request(url, path)).status).toBe(200);
  expect(logged.join("\n")).not.toContain("wrong");
});

test("a credential counts in the Authorization header only", async () => {
  const { url } = await startSecuredServer();
  for (const [path, headers] of [
    [`/v1/locks?credential=${CANARY}`, {}],
    ["/v1/locks", { cookie: `credential=${CANARY}` }],
    ["/v1/locks", { "x-credential": CANARY }],
    ["/v1/locks", { authorization: `Basic ${Buffer.from(`a:${CANARY}`).toString("base64")}` }],
    ["/v1/locks", { authorization: CANARY }],
    ["/v1/locks", { authorization: `Bearer ${CANARY} ` }],
    ["/v1/locks", { authorization: `Bearer  ${CANARY}` }],
  ] as const) {
    const refusal = await request(url, path, { headers });
    // the client trims trailing whitespace in a header
    if (headers.authorization !== `Bearer ${CANARY} `) expect([headers, refusal.status]).not.toEqual([headers, 200]);
    expect(refusal.text).not.toContain(CANARY);
  }
  const body = await post(url, "/v1/claims", { key: "team-a/x", credential: CANARY });
  expect(body.status).toBe(401);
});

test("an account acquires only locks below its prefixes, up to the separator", async () => {
  const { url } = await startSecuredServer();
  for (const [key, status] of [
    ["team-a/x", 201],
    ["team-ab", 403],
    ["team-a", 403],
    ["team-b/x", 403],
    ["", 400],
  ] as const) {
    expect([key, (await post(url, "/v1/claims", { key, wait: 0 }, withCredential(CANARY))).status]).toEqual([
      key,
      status,
    ]);
  }
  const mixedResponse = await post(url, "/v1/claims", { keys: ["team-a/y", "team-b/y"] }, withCredential(CANARY));
  expect(mixedResponse).toMatchObject({ status: 403, json: { code: "FORBIDDEN", reason: "rights" } });
  expect((await post(url, "/v1/claims", { key: "x" }, withCredential("ops"))).status).toBe(403);
});

test("a reference works only for the account that placed the claim: to others the lock does not exist", async () => {
  const { url } = await startSecuredServer();
  const held = await post(url, "/v1/claims", { key: "team-a/x" }, withCredential(CANARY));
  const waiting = await post(url, "/v1/claims", { key: "team-a/x", wait: "1ms" }, withCredential(CANARY));
  for (const other of ["b", "a-too", "ops"]) {
    const unknown = { code: "LOCK_LOST", reason: "unknown" };
    // one that may not acquire the key at all learns only that, whether the claim exists or not
    const refusals = { release: unknown, renew: other === "a-too" ? unknown : { code: "FORBIDDEN", reason: "rights" } };
    for (const verb of ["renew", "release"] as const) {
      const refusal = await post(url, `/v1/claims/${verb}`, { reference: held.json.reference }, withCredential(other));
      expect([other, verb, refusal.json]).toMatchObject([other, verb, refusals[verb]]);
    }
    const { reference } = waiting.json;
    for (const [verb, expected] of [
      ["wait", refusals.renew],
      ["release", unknown],
    ] as const) {
      const refusal = await post(url, `/v1/claims/${verb}`, { reference, wait: "1ms" }, withCredential(other));
      expect([other, verb, refusal.json]).toMatchObject([other, verb, expected]);
    }
  }
  const ownResponse = await post(url, "/v1/claims/renew", { reference: held.json.reference }, withCredential(CANARY));
  expect(ownResponse.status).toBe(200);
  await post(url, "/v1/claims/release", { reference: held.json.reference }, withCredential(CANARY));
  const granted = await post(url, "/v1/claims/wait", { reference: waiting.json.reference }, withCredential(CANARY));
  expect(granted.status).toBe(201);
});

test("an account without the right to inspect learns that a key is busy, but not its holder; lists show what the account may inspect", async () => {
  const { url } = await startSecuredServer();
  await post(url, "/v1/claims", { key: "team-a/x", label: "ana's report" }, withCredential(CANARY));
  await post(url, "/v1/claims", { key: "team-b/x", label: "bert" }, withCredential("b"));
  const restrictedResponse = await post(url, "/v1/claims", { key: "team-a/x", wait: 0 }, withCredential("a-too"));
  expect(restrictedResponse.json).toMatchObject({ code: "BUSY", reason: "held" });
  expect(restrictedResponse.json.holder).toBeUndefined();
  const permittedResponse = await post(url, "/v1/claims", { key: "team-a/x", wait: 0 }, withCredential(CANARY));
  expect(permittedResponse.json.holder).toBe("ana's report");
  const keys = async (credential: string, query = ""): Promise<string[]> => {
    const { locks } = (await request(url, `/v1/locks${query}`, withCredential(credential))).json;
    return locks.flatMap((lock: { locks: { key: string }[] }) => lock.locks.map(({ key }) => key));
  };
  expect(await keys(CANARY)).toEqual(["team-a/x"]);
  expect(await keys(CANARY, "?prefix=team-b/")).toEqual([]);
  expect(await keys("b")).toEqual([]);
  expect(await keys("ops")).toEqual(["team-a/x", "team-b/x"]);
  // a list is filtered before its page is cut
  expect(await keys(CANARY, "?limit=1")).toEqual(["team-a/x"]);
});

test("revocations and metrics need their rights", async () => {
  const { url } = await startSecuredServer();
  const { token } = (await post(url, "/v1/claims", { key: "team-a/x" }, withCredential(CANARY))).json;
  const body = { key: "team-a/x", token, reason: "why" };
  for (const credential of [CANARY, "b"]) {
    expect((await post(url, "/v1/locks/revoke", body, withCredential(credential))).status).toBe(403);
    expect((await request(url, "/metrics", withCredential(credential))).status).toBe(403);
  }
  expect((await request(url, "/metrics", withCredential("ops"))).status).toBe(200);
  expect((await post(url, "/v1/locks/revoke", body, withCredential("ops"))).status).toBe(200);
});

test("a stream has the events of keys that the account may inspect, and ends with its credential", async () => {
  const { url, access } = await startSecuredServer();
  const stream = await openRequest(url, "/events", withCredential(CANARY));
  let text = "";
  stream.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await post(url, "/v1/claims", { key: "team-b/x" }, withCredential("b"));
  await post(url, "/v1/claims", { key: "team-a/x" }, withCredential(CANARY));
  await until(() => text.includes("team-a/x"), { within: 2_000, what: "the event" });
  expect(text).not.toContain("team-b");
  access.replace(ACCOUNTS.slice(1));
  await until(() => stream.complete, { within: 2_000, what: "the end of the stream" });
});

test("a waiting request is refused when its credential is removed, and leaves no queue entry", async () => {
  const { url, access, stats } = await startSecuredServer();
  const held = await post(url, "/v1/claims", { key: "team-a/x" }, withCredential("a-too"));
  const waiting = post(url, "/v1/claims", { key: "team-a/x" }, withCredential(CANARY));
  await until(() => stats().claims === 2, { within: 2_000, what: "its place" });
  access.replace(ACCOUNTS.slice(1));
  await until(() => stats().claims === 1, { within: 2_000, what: "the end of its place" });
  expect(await waiting).toMatchObject({ status: 401, json: { code: "AUTH" } });
  expect(
    (await post(url, "/v1/claims/release", { reference: held.json.reference }, withCredential("a-too"))).status,
  ).toBe(200);
});

test("an account that may no longer acquire a key gets 403 for waits and renewals, and can still release its lock", async () => {
  const { url, access, stats } = await startSecuredServer();
  const held = await post(url, "/v1/claims", { key: "team-a/held" }, withCredential(CANARY));
  const busy = await post(url, "/v1/claims", { key: "team-a/x" }, withCredential("a-too"));
  const waiting = post(url, "/v1/claims", { key: "team-a/x" }, withCredential(CANARY));
  const unattended = await post(url, "/v1/claims", { key: "team-a/x", wait: 1 }, withCredential(CANARY));
  expect(unattended.status).toBe(202);
  await until(() => stats().claims === 4, { within: 2_000, what: "its places" });
  const [first, ...others] = ACCOUNTS as readonly [Account, ...Account[]];
  access.replace([{ ...first, rules: [{ prefix: "team-a/", rights: ["inspect"] }] }, ...others]);
  expect(stats().claims).toBe(2);
  const forbidden = { status: 403, json: { code: "FORBIDDEN", reason: "rights" } };
  expect(await waiting).toMatchObject(forbidden);
  const { reference } = held.json;
  const again = (path: string, body: object): Promise<unknown> => post(url, path, body, withCredential(CANARY));
  expect(await again("/v1/claims/wait", { reference: unattended.json.reference })).toMatchObject(forbidden);
  expect(await again("/v1/claims/renew", { reference })).toMatchObject(forbidden);
  expect(await again("/v1/claims/release", { reference })).toMatchObject({ status: 200, json: { state: "released" } });
  await post(url, "/v1/claims/release", { reference: busy.json.reference }, withCredential("a-too"));
  expect(stats().claims).toBe(0);
});

test("the same rules hold over TLS, and a page of the same host without TLS counts as cross-origin", async () => {
  const issuer = createAuthority();
  const files = writeCertificate(createTemporaryDirectory(), issuer.issue(["locks.example", "127.0.0.1"]), issuer);
  const server = await startHttpServer({ access: createAccessControl(ACCOUNTS), tls: files, http: "0.0.0.0:0" });
  expect(server.url).toMatch(/^https:/);
  const { port } = new URL(server.url);
  const get = (headers: { readonly [name: string]: string }): Promise<number> =>
    new Promise((resolve, reject) => {
      const allHeaders = { authorization: `Bearer ${CANARY}`, ...headers };
      const options = {
        host: "127.0.0.1",
        port,
        path: "/v1/locks",
        headers: allHeaders,
        servername: "locks.example",
        ca: issuer.cert,
        agent: false as const,
      };
      secureRequest(options, (answer) => {
        answer.resume().on("end", () => resolve(answer.statusCode as number));
      })
        .on("error", reject)
        .end();
    });
  expect(await get({})).toBe(200);
  // a name in the certificate is a name of the server
  expect(await get({ host: "locks.example" })).toBe(200);
  expect(await get({ host: "evil.example" })).toBe(403);
  expect(await get({ origin: `https://127.0.0.1:${port}` })).toBe(200);
  expect(await get({ origin: `http://127.0.0.1:${port}` })).toBe(403);
  expect(await get({ authorization: "Bearer wrong" })).toBe(401);
  // plain HTTP on the TLS port is not a request
  await expect(request(`http://127.0.0.1:${port}`, "/health")).rejects.toThrow();
});

/** Settles when a connection that sends only these bytes has ended. */
async function connectSilently(url: string, bytes: Buffer): Promise<{ readonly ended: Promise<unknown> }> {
  const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) });
  onCleanup(() => {
    socket.destroy();
  });
  const ended = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  socket.on("error", () => undefined).resume();
  if (bytes.length > 0) socket.write(bytes);
  return { ended };
}

test("over TLS an unfinished handshake is ended in time: a thousand of them would otherwise keep other clients out", async () => {
  const issuer = createAuthority();
  const files = writeCertificate(createTemporaryDirectory(), issuer.issue(["127.0.0.1"]), issuer);
  const server = await startHttpServer({
    access: createAccessControl(ACCOUNTS),
    tls: files,
    http: "0.0.0.0:0",
  });
  const firstBytes = ["", "16030100050100"].map((hex) => Buffer.from(hex, "hex"));
  const connections = await Promise.all(firstBytes.map((bytes) => connectSilently(server.url, bytes)));
  for (const { ended } of connections) await expect(ended).resolves.toBeDefined();
});

test("over TLS a stopping server does not wait for unfinished handshakes", async () => {
  const issuer = createAuthority();
  const files = writeCertificate(createTemporaryDirectory(), issuer.issue(["127.0.0.1"]), issuer);
  const access = createAccessControl(ACCOUNTS);
  const server = await startHttpServer({ access, tls: files, http: "0.0.0.0:0" });
  const { ended } = await connectSilently(server.url, Buffer.alloc(0));
  const startedAt = performance.now();
  await server.close();
  await expect(ended).resolves.toBeDefined();
  // an unfinished handshake may take five seconds
  expect(performance.now() - startedAt).toBeLessThan(4_000);
});

test("too many wrong credentials in a minute are answered 429 and logged once, on whichever port they come; the right one is admitted", async () => {
  const ana = testAccount("ana");
  const access = createAccessControl([ana.account], { failuresPerMinute: 5 });
  const server = await startHttpServer({ access, listen: "holdfast://127.0.0.1:0" });
  const requestUnauthorized = () => request(server.url, "/v1/locks", { credential: `hf1_${"a".repeat(52)}` });
  const statuses: number[] = [];
  for (let index = 0; index < 12; index++) statuses.push((await requestUnauthorized()).status);
  expect(statuses).toEqual([...Array.from({ length: 5 }, () => 401), ...Array.from({ length: 7 }, () => 429)]);
  const { headers, json } = await requestUnauthorized();
  expect(headers["retry-after"]).toBe("60");
  expect(json).toMatchObject({ code: "LIMIT", reason: "credential", retryMs: 60_000 });
  // without any credential
  expect((await request(server.url, "/v1/locks")).status).toBe(429);
  const rawClient = await RawClient.connect(parseRawAddress(server.addresses[0] as string));
  await rawClient.sendHello().catch(() => undefined);
  expect(rawClient.refusal).toBe("LIMIT");
  rawClient.end();
  expect(server.logged.filter((line) => line.includes("a client was refused"))).toHaveLength(5);
  expect(server.logged.filter((line) => line.includes("too many wrong credentials"))).toHaveLength(1);
  expect(server.logged.join("\n")).not.toContain("a request failed");
  expect((await request(server.url, "/v1/locks", { credential: ana.credential })).status).toBe(200);
  expect((await request(server.url, "/health")).status).toBe(200);
});

test("a credential that is replaced ends the wait of its request, but the place is kept for the other one of the account", async () => {
  const [first, second] = [createCredential(), createCredential()];
  const rules = [{ prefix: "", rights: ["acquire", "inspect"] as const }];
  const access = createAccessControl([{ name: "ana", hashes: [first.hash, second.hash], rules }]);
  const { url } = await startHttpServer({ access });
  const by = ({ credential }: typeof first) => ({ credential });
  const held = await post(url, "/v1/claims", { key: "k" }, by(second));
  const waiting = await post(url, "/v1/claims", { key: "k", wait: 1 }, by(first));
  const { reference } = waiting.json;
  const attended = post(url, "/v1/claims/wait", { reference }, by(first));
  await until(async () => (await request(url, "/v1/locks", by(second))).json.locks.length === 2, {
    within: 5_000,
    what: "it",
  });
  access.replace([{ name: "ana", hashes: [second.hash], rules }]);
  expect((await attended).status).toBe(401);
  const next = post(url, "/v1/claims/wait", { reference }, by(second));
  await post(url, "/v1/claims/release", { reference: held.json.reference }, by(second));
  expect((await next).status).toBe(201);
});
