// A page on another site reaches the server's port through the visitor's browser, and may use a host name of its own. It
// learns nothing and changes nothing, with any method.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import { openRequest, post, request, sendBytes } from "../../support/http-fixture.ts";

let server: Server;
let url: string;
let host: string;

beforeAll(async () => {
  server = await serve({
    listen: "holdfast://127.0.0.1:0",
    http: "127.0.0.1:0",
    state: "none",
    httpNames: ["locks.example"],
  });
  url = server.httpAddress as string;
  host = new URL(url).host;
});
afterAll(() => server.close());

const PATHS = ["/health", "/ready", "/metrics", "/events", "/v1/locks", "/v1/openapi.json", "/v1/claims", "/nothing"];
const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

test.each([
  ["a foreign Origin", { origin: "https://evil.example" }, "origin"],
  ["the Origin of a file or a sandbox", { origin: "null" }, "origin"],
  ["the Origin of another port of this machine", { origin: "http://127.0.0.1:1" }, "origin"],
  ["an Origin with another scheme", { origin: "https://HOST" }, "origin"],
  ["a cross-site request", { "sec-fetch-site": "cross-site" }, "site"],
  ["a request of a neighbouring site", { "sec-fetch-site": "same-site" }, "site"],
  ["the host name of another site (DNS rebinding)", { host: "evil.example" }, "host"],
  ["a host name that only begins like the server's", { host: "127.0.0.1.evil.example" }, "host"],
  ["a name behind a user part", { host: "127.0.0.1@evil.example" }, "host"],
  ["an address of another machine", { host: "10.0.0.1:7421" }, "host"],
])(
  "%s is refused for every path and method, without any information",
  async (_, raw: Record<string, string>, reason) => {
    const headers = Object.fromEntries(Object.entries(raw).map(([name, value]) => [name, value.replace("HOST", host)]));
    for (const path of PATHS) {
      for (const method of METHODS) {
        const answer = await request(url, path, { method, headers, ...(method === "POST" && { body: { key: "k" } }) });
        expect([path, method, answer.status]).toEqual([path, method, 403]);
        if (method !== "HEAD") expect(answer.json).toMatchObject({ code: "FORBIDDEN", reason });
        expect(answer.headers["access-control-allow-origin"]).toBeUndefined();
      }
    }
    expect(server.stats().claims).toBe(0);
  },
);

test("the server's own pages, tools without a browser, and every configured host name are accepted", async () => {
  const port = new URL(url).port;
  for (const headers of [
    {},
    { origin: `http://${host}`, "sec-fetch-site": "same-origin" },
    { "sec-fetch-site": "none" },
    { host: "localhost" },
    { host: `LOCALHOST:${port}` },
    { host: "locks.example:80" },
    { host: "[::1]:80" },
  ]) {
    expect([headers, (await request(url, "/health", { headers })).status]).toEqual([headers, 200]);
  }
});

test("a form cannot be posted: only application/json is read", async () => {
  for (const type of [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
    "json",
  ]) {
    for (const path of [
      "/v1/claims",
      "/v1/claims/wait",
      "/v1/claims/renew",
      "/v1/claims/release",
      "/v1/locks/revoke",
    ]) {
      const answer = await post(url, path, { key: "k" }, { headers: { "content-type": type } });
      expect([type, answer.status, answer.json.code]).toEqual([type, 415, "MEDIA_TYPE"]);
    }
  }
  const gzipResponse = await post(url, "/v1/claims", { key: "k" }, { headers: { "content-encoding": "gzip" } });
  expect(gzipResponse.status).toBe(415);
  expect(server.stats().claims).toBe(0);
  const plainResponse = await post(
    url,
    "/v1/claims",
    { key: "t", ttl: 100, wait: 0 },
    {
      headers: { "content-type": 'Application/JSON; charset="UTF-8"' },
    },
  );
  // a server without a state directory recovers for a minute
  expect(plainResponse.json).toMatchObject({ status: 503, reason: "recovery" });
});

test("no answer may be cached, framed, sniffed or read by pages of other origins", async () => {
  for (const path of [...PATHS.filter((it) => it !== "/events"), "/v1/claims/wait"]) {
    for (const method of METHODS) {
      const { headers } = await request(url, path, { method });
      expect(headers).toMatchObject({
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
      });
      expect(headers["content-security-policy"]).toContain("default-src 'none'");
      expect(headers.server ?? headers["x-powered-by"]).toBeUndefined();
    }
  }
  const stream = await openRequest(url, "/events");
  expect(stream.headers).toMatchObject({ "cache-control": "no-store", "x-content-type-options": "nosniff" });
  stream.destroy();
});

test("a preflight is answered without any CORS header", async () => {
  const answer = await request(url, "/v1/claims", {
    method: "OPTIONS",
    headers: { "access-control-request-method": "POST" },
  });
  expect(answer).toMatchObject({ status: 204, headers: { allow: "POST, OPTIONS" } });
  expect(answer.headers).not.toHaveProperty("content-type");
  expect(Object.keys(answer.headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
});

test("unknown paths are 404; methods that a path does not have are 405 and list the allowed ones", async () => {
  for (const path of [
    "/",
    "/v1",
    "/v1/claims/",
    "/V1/claims",
    "/v1/claims/x",
    "//v1/claims",
    "/v1/%63laims/x",
    "/..",
  ]) {
    const { status, json } = await request(url, path);
    expect([path, status]).toEqual([path, path === "//v1/claims" ? 400 : 404]);
    expect(json.code).toBe(path === "//v1/claims" ? "INVALID" : "NOT_FOUND");
  }
  expect(await request(url, "/v1/claims")).toMatchObject({ status: 405, headers: { allow: "POST, OPTIONS" } });
  expect(await request(url, "/v1/locks", { method: "DELETE" })).toMatchObject({
    status: 405,
    headers: { allow: "GET, HEAD, OPTIONS" },
    json: { code: "METHOD" },
  });
});

test("HEAD answers like GET, without a body", async () => {
  for (const path of ["/health", "/v1/locks", "/metrics", "/v1/openapi.json", "/events"]) {
    const answer = await request(url, path, { method: "HEAD" });
    expect([path, answer.status, answer.text]).toEqual([path, 200, ""]);
  }
});

test("an ambiguous request is refused: two hosts, two lengths, a length and chunks, a target that is not a path", async () => {
  const start = "POST /v1/claims HTTP/1.1\r\n";
  const close = "Connection: close\r\n";
  const json = "Content-Type: application/json\r\n";
  const chunks = "Transfer-Encoding: chunked\r\n";
  for (const [bytes, status] of [
    [`${start}${close}Host: ${host}\r\nHost: evil.example\r\n\r\n`, 400],
    [`${start}${close}Host: ${host}\r\n${json}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`, 400],
    [`${start}${close}Host: ${host}\r\n${json}Content-Length: 2\r\n${chunks}\r\n{}`, 400],
    [`${start}${close}Host: ${host}\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n`, 400],
    [`GET http://evil.example/v1/locks HTTP/1.1\r\n${close}Host: ${host}\r\n\r\n`, 400],
    [`OPTIONS * HTTP/1.1\r\n${close}Host: ${host}\r\n\r\n`, 400],
    [`GET /v1/locks HTTP/1.1\r\n${close}\r\n`, 400],
    [`GET /v1/locks HTTP/1.0\r\n${close}\r\n`, 400],
    [`GET /v1/locks HTTP/1.1\r\n${close}Host:\r\n\r\n`, 403],
    [`GET /v1/locks HTTP/1.1\r\n${close}Host: [::1\r\n\r\n`, 403],
    [`GET / HTTP/3.7\r\nHost: ${host}\r\n\r\n`, 400],
    [`CONNECT evil.example:443 HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 405],
    ['{"hello":{"protocol":1}}\n\n', 400],
    ["\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003", 400],
    [`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Long: ${"x".repeat(20_000)}\r\n\r\n`, 431],
    [`GET / HTTP/1.1\r\nHost: ${host}\r\nX\u0000: 1\r\n\r\n`, 400],
  ] as const) {
    const answer = await sendBytes(url, bytes);
    expect([bytes.slice(0, 60), answer.split("\r\n")[0]]).toEqual([
      bytes.slice(0, 60),
      expect.stringContaining(`HTTP/1.1 ${status} `),
    ]);
    expect(answer).toContain("cache-control: no-store");
    expect(answer).toContain("application/problem+json");
  }
});

test("a WebSocket upgrade is treated as an ordinary request", async () => {
  const headers = { upgrade: "websocket", connection: "Upgrade", "sec-websocket-version": "13" };
  for (const origin of ["https://evil.example", "null"]) {
    expect((await request(url, "/events", { headers: { ...headers, origin } })).status).toBe(403);
  }
  expect((await request(url, "/v1/nothing", { headers })).status).toBe(404);
});

test("pipelined requests are answered in order, and only so many at a time", async () => {
  const formatRequest = (path: string, extraHeaders = ""): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${extraHeaders}\r\n`;
  const answers = await sendBytes(
    url,
    formatRequest("/health") + formatRequest("/nothing") + formatRequest("/ready", "Connection: close\r\n"),
  );
  expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 404", "HTTP/1.1 503"]);
});
