// Requests as bytes: errors that the HTTP parser reports, drops or would answer by itself get the API's own form, too.

import { expect, test } from "vitest";
import { cleanUpAfterEach, post, request, sendBytes, startHttpServer } from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const REQUEST_HEAD = "POST /v1/claims HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
const CHUNKED = `${REQUEST_HEAD}Transfer-Encoding: chunked\r\n\r\n`;

test.each([
  ["no request", "hello\r\n\r\n", "400 Bad Request", '"code":"INVALID"'],
  ["a head of 20 KB", `GET / HTTP/1.1\r\nX-A: ${"a".repeat(20_000)}\r\n\r\n`, "431 Request", '"reason":"header"'],
  ["no number where a chunk begins", `${CHUNKED}zz\r\n{}\r\n`, "400 Bad Request", '"code":"INVALID"'],
  ["a chunk longer than it says", `${CHUNKED}2\r\n{}}}\r\n0\r\n\r\n`, "400 Bad Request", '"code":"INVALID"'],
  ["20 KB behind the length of a chunk", `${CHUNKED}2;${"a".repeat(20_000)}\r\n`, "413 Payload", '"reason":"length"'],
])("%s is refused in the form of the API, and the connection ends", async (_, bytes, status, detail) => {
  const { url, stats, logged } = await startHttpServer();
  const answer = await sendBytes(url, bytes);
  expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status}`));
  expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
  expect(answer).toContain("content-type: application/problem+json");
  expect(answer).toContain("x-content-type-options: nosniff");
  expect(answer).toContain(detail);
  expect(stats().claims).toBe(0);
  expect(logged.join("\n")).not.toContain("a request failed");
});

test("an invalid request behind a waiting one ends both: no part of it could be taken for the answer", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const body = '{"key":"k"}';
  expect(await sendBytes(url, `${REQUEST_HEAD}Content-Length: ${body.length}\r\n\r\n${body}no request\r\n\r\n`)).toBe(
    "",
  );
  expect(stats().claims).toBe(1);
});

test("no header is dropped, however many come before it", async () => {
  const { url } = await startHttpServer();
  const manyHeaders = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`x-${index}`, "a"]));
  expect((await request(url, "/health", { headers: manyHeaders })).status).toBe(200);
  const refusal = await request(url, "/health", { headers: { ...manyHeaders, origin: "http://evil.example" } });
  expect(refusal).toMatchObject({ status: 403, json: { code: "FORBIDDEN", reason: "origin" } });
});

test("an unknown expectation is ignored, and does not bypass authentication", async () => {
  const { url } = await startHttpServer();
  const headers = { expect: "42" };
  const held = await post(url, "/v1/claims", { key: "k", wait: 0 }, { headers });
  expect(held).toMatchObject({ status: 201, json: { state: "held" } });
  const foreign = await request(url, "/health", { headers: { ...headers, host: "evil.example" } });
  expect(foreign).toMatchObject({ status: 403, json: { code: "FORBIDDEN", reason: "host" } });
});
