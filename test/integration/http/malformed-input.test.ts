// Any body or query gets either a refusal that names the field, or a lock. Nothing is echoed, and nothing is left behind.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import { parseJsonToMaps } from "../../../src/util/strict-json.ts";
import type { HttpResponse } from "../../support/http-fixture.ts";
import { post, request } from "../../support/http-fixture.ts";
import { MALFORMED_KEYS, MALFORMED_TERMS } from "../../support/malformed-inputs.ts";

let server: Server;
let url: string;
const dir = mkdtempSync(join(tmpdir(), "holdfast-http-"));
const logged: string[] = [];

beforeAll(async () => {
  server = await serve({
    listen: `holdfast+unix:${join(dir, "socket")}`,
    http: "127.0.0.1:0",
    state: join(dir, "state"),
    log: (message, error) => logged.push(`${message} ${error}`),
  });
  url = server.httpAddress as string;
});
afterAll(async () => {
  await server.close();
  rmSync(dir, { recursive: true });
});

const postClaim = (raw: string | Buffer): Promise<HttpResponse> => request(url, "/v1/claims", { method: "POST", raw });

test.each<[string, string | Buffer, string, string]>([
  ["no body", "", "body", "malformed"],
  ["invalid JSON", "{", "body", "malformed"],
  ["JSON and more", '{"key":"k"} x', "body", "malformed"],
  ["a list", '["k"]', "body", "malformed"],
  ["a text", '"k"', "body", "malformed"],
  ["null", "null", "body", "malformed"],
  ["a byte order mark", "\ufeff{}", "body", "malformed"],
  ["no UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), "body", "malformed"],
  ["half a character", Buffer.from('{"key":"\u00e9"}').subarray(0, 9), "body", "malformed"],
  ["nesting", `{"key":${"[".repeat(100_000)}${"]".repeat(100_000)}}`, "key", "malformed"],
  ["nesting that does not end", `{"label":${"[".repeat(100_000)}`, "label", "malformed"],
  ["a member twice", '{"key":"a","key":"b"}', "key", "malformed"],
  ["a member twice, once escaped", '{"key":"a","\\u006bey":"b"}', "key", "malformed"],
  ["__proto__", '{"key":"a","__proto__":{"wait":0}}', "__proto__", "malformed"],
  ["__proto__ deeper", '{"key":"a","x":{"__proto__":1}}', "x.__proto__", "malformed"],
  ["a comment", '{"key":"a"/*x*/}', "body", "malformed"],
  ["a control character in a text", '{"key":"a\nb"}', "body", "malformed"],
  ["a broken escape", '{"key":"\\ud8"}', "body", "malformed"],
])("a body with %s is refused", async (_, raw, field, reason) => {
  const refusal = await postClaim(raw);
  expect(refusal).toMatchObject({ status: 400, json: { code: "INVALID", field, reason } });
  expect(refusal.text.length).toBeLessThan(400);
  expect(server.stats().claims).toBe(0);
});

test.each<[string, object, string, string]>([
  ["no key", {}, "key", "missing"],
  ["key and keys", { key: "a", keys: ["b"] }, "keys", "conflict"],
  ["keys that are a text", { keys: "a" }, "keys", "malformed"],
  ["no keys", { keys: [] }, "keys", "range"],
  ["129 keys", { keys: Array.from({ length: 129 }, (_, index) => `k${index}`) }, "keys", "range"],
  ["a bad key among keys", { keys: ["a", ""] }, "keys[1]", "malformed"],
  ["ttl 99", { key: "a", ttl: 99 }, "ttl", "range"],
  ["ttl of 31 days", { key: "a", ttl: 31 * 86_400_000 }, "ttl", "range"],
  ["ttl in weeks", { key: "a", ttl: "1w" }, "ttl", "malformed"],
  ["ttl null", { key: "a", ttl: null }, "ttl", "malformed"],
  ["a session", { key: "a", ttl: "session" }, "ttl", "session"],
  ["wait -1", { key: "a", wait: -1 }, "wait", "malformed"],
  ["wait true", { key: "a", wait: true }, "wait", "malformed"],
  ["an unknown mode", { key: "a", mode: "read" }, "mode", "malformed"],
  ["a semaphore without a limit", { key: "a", mode: "semaphore" }, "limit", "missing"],
  ["permits without a limit", { key: "a", permits: 1 }, "permits", "conflict"],
  ["a limit of 0", { key: "a", limit: 0 }, "limit", "range"],
  ["a limit of 2^31", { key: "a", limit: 2 ** 31 }, "limit", "range"],
  ["permits above the limit", { key: "a", limit: 2, permits: 3 }, "permits", "range"],
  ["permits 0", { key: "a", limit: 2, permits: 0 }, "permits", "range"],
  ["a shared semaphore", { key: "a", mode: "shared", limit: 2 }, "limit", "conflict"],
  ["a label that is a number", { key: "a", label: 5 }, "label", "malformed"],
])("a claim with %s is refused, and the field is named", async (_, body, field, reason) => {
  const refusal = await post(url, "/v1/claims", body);
  expect(refusal).toMatchObject({ status: 400, json: { code: "INVALID", field, reason } });
  expect(refusal.text).not.toContain("Set-Cookie");
  expect(server.stats().claims).toBe(0);
});

test("the refusal of a session lease says what to use instead", async () => {
  const { json } = await post(url, "/v1/claims", { key: "a", ttl: "session" });
  expect(json.detail).toContain("use a duration (at most 30 days)");
});

test.each(MALFORMED_KEYS)(
  "a key that is $what is accepted or refused as over the lock protocol",
  async ({ keys, outcome }) => {
    const held: HttpResponse[] = [];
    for (const key of keys) {
      const answer = await post(url, "/v1/claims", { key, wait: 0, ...(typeof key === "string" && { label: key }) });
      if (outcome !== "closed") {
        expect(answer).toMatchObject({ status: 201, json: { keys: [key] } });
        const response = await request(url, `/v1/locks?prefix=${encodeURIComponent(key as string)}`);
        expect(response.json.locks.some((lock: { locks: { key: string }[] }) => lock.locks[0]?.key === key)).toBe(true);
        held.push(answer);
      } else if (answer.status !== 413) {
        expect(answer).toMatchObject({ status: 400, json: { code: "INVALID", field: "key", reason: "malformed" } });
        expect(answer.text.length).toBeLessThan(400);
      }
    }
    // keys that look alike are separate locks
    expect(server.stats().claims).toBe(held.length);
    for (const { json } of held) await post(url, "/v1/claims/release", { reference: json.reference });
  },
);

test.each(MALFORMED_TERMS.filter(({ what }) => what.startsWith("ttl")))(
  "$what is $outcome",
  async ({ rest, outcome }) => {
    const answer = await postClaim(`{"key":"k","ttl":${rest}}`);
    if (outcome === "held") expect(answer.status).toBe(201);
    else expect(answer).toMatchObject({ status: 400, json: { code: "INVALID" } });
    if (outcome === "held") await post(url, "/v1/claims/release", { reference: answer.json.reference });
    expect(server.stats().claims).toBe(0);
  },
);

test("a prefix may contain every character that a key may contain", async () => {
  const key = "odd/\ufffd+%2f \u{1f600}";
  const held = await post(url, "/v1/claims", { key, wait: 0 });
  const response = await request(url, `/v1/locks?prefix=${encodeURIComponent(key)}`);
  expect(response).toMatchObject({ status: 200, json: { locks: [{ locks: [{ key }] }] } });
  for (const broken of ["%ff", "%ed%a0%80", "%f0%9f", "+%80"]) {
    const refusal = await request(url, `/v1/locks?prefix=${broken}`);
    expect(refusal).toMatchObject({ status: 400, json: { field: "query", reason: "malformed" } });
  }
  await post(url, "/v1/claims/release", { reference: held.json.reference });
});

test("unknown members are ignored, so that newer clients work with older servers", async () => {
  const held = await post(url, "/v1/claims", { key: "k", constructor: 1, colour: { deep: [1] } });
  expect(held.status).toBe(201);
  await post(url, "/v1/claims/release", { reference: held.json.reference, colour: 1 });
});

test("a label is cut, and characters that would change a terminal are removed", async () => {
  const held = await post(url, "/v1/claims", { key: "k", label: `\u001b[2J${"x".repeat(1_000)}` });
  const [lock] = (await request(url, "/v1/locks")).json.locks;
  expect(lock.label).toBe(` [2J${"x".repeat(252)}`);
  await post(url, "/v1/claims/release", { reference: held.json.reference });
});

test("a body may have as many bytes as a line, with or without a declared length", async () => {
  const raw = `{"key":"k","label":"${"x".repeat(262_144)}"}`;
  for (const headers of [{}, { "content-length": [], "transfer-encoding": "chunked" }]) {
    const refusal = await request(url, "/v1/claims", { method: "POST", raw, headers }).catch((error: Error) => error);
    // the connection ends while the client still sends; most clients read the answer, some see the end first
    if (!(refusal instanceof Error)) expect(refusal).toMatchObject({ status: 413, json: { code: "LIMIT" } });
  }
  const hugeResponse = await request(url, "/v1/claims", {
    method: "POST",
    headers: { "content-length": "100000000" },
    raw: "",
  }).catch((error: Error) => error);
  if (!(hugeResponse instanceof Error)) expect(hugeResponse.status).toBe(413);
  expect((await request(url, "/health")).status).toBe(200);
});

test.each([
  ["?limit=0", "limit"],
  ["?limit=1001", "limit"],
  ["?limit=-1", "limit"],
  ["?limit=1e2", "limit"],
  ["?limit=%00", "limit"],
  ["?cursor=x", "cursor"],
  ["?cursor=__proto__", "cursor"],
  ["?prefx=a", "query"],
  ["?prefix=a&prefix=b", "prefix"],
  ["?prefix=%ff", "query"],
  ["?prefix=%zz", "query"],
  ["?credential=secret", "query"],
])("the query %s is refused", async (query, field) => {
  const refusal = await request(url, `/v1/locks${query}`);
  expect(refusal).toMatchObject({ status: 400, json: { code: "INVALID", field } });
  expect(refusal.text).not.toContain("secret");
});

test.each([
  [{}, "key"],
  [{ key: "k" }, "token"],
  [{ key: "k", token: 5, reason: "r" }, "token"],
  [{ key: "k", token: "-1", reason: "r" }, "token"],
  [{ key: "k", token: "9".repeat(20), reason: "r" }, "token"],
  [{ key: "k", token: "5" }, "reason"],
  [{ key: "k", token: "5", reason: " " }, "reason"],
  [{ key: "k", token: "5", reason: "x".repeat(257) }, "reason"],
  [{ key: "k", token: "5", reason: "r", now: "yes" }, "now"],
])("the revocation %j is refused", async (body, field) => {
  expect(await post(url, "/v1/locks/revoke", body)).toMatchObject({ status: 400, json: { field } });
});

test("a reference that no server can have made is malformed, whatever it contains", async () => {
  const { createHash } = await import("node:crypto");
  const encode = (content: unknown): string => {
    const body = Buffer.from(JSON.stringify(content)).toString("base64url");
    return `hf1.${body}.${createHash("sha256").update(`hf1.${body}`).digest("base64url").slice(0, 8)}`;
  };
  const id = "a".repeat(26);
  const allPermits = 2 ** 30;
  for (const content of [
    null,
    [],
    { p: "", c: [] },
    { p: 5, c: [[id, [["k", allPermits, allPermits]], 1_000, "1", "1"]] },
    { p: "", c: [["short", [["k", allPermits, allPermits]], 1_000, "1", "1"]] },
    { p: "", c: [[id, [], 1_000, "1", "1"]] },
    { p: "", c: [[id, [["k", 2, 1]], 1_000, "1", "1"]] },
    { p: "", c: [[id, [["k", "1", allPermits]], 1_000, "1", "1"]] },
    {
      p: "",
      c: [
        [
          id,
          [
            ["b", allPermits, allPermits],
            ["a", allPermits, allPermits],
          ],
          1_000,
          "1",
          "1",
        ],
      ],
    },
    { p: "", c: [[id, [["k", allPermits, allPermits]], -5, "1", "1"]] },
    { p: "", c: [[id, [["k", allPermits, allPermits]], 1e300, "1", "1"]] },
    { p: "", c: [[id, [["k", allPermits, allPermits]], 1_000, "9".repeat(30), "9".repeat(30)]] },
    { p: "", c: [[id, [["k", allPermits, allPermits]], 1_000, "2", "1"]] },
    { p: "", c: Array.from({ length: 200 }, () => [id, [["k", allPermits, allPermits]], 1_000, "1", "1"]) },
  ]) {
    for (const verb of ["wait", "renew", "release"]) {
      const reference = verb === "wait" ? `wait.${encode(content)}` : encode(content);
      const refusal = await post(url, `/v1/claims/${verb}`, { reference });
      expect([content, refusal.status, refusal.json.field]).toEqual([content, 400, "reference"]);
    }
  }
});

test("a wait with a held reference, and a renewal with a waiting one, are refused with the right call to use", async () => {
  const held = await post(url, "/v1/claims", { key: "k" });
  const waiting = await post(url, "/v1/claims", { key: "k", wait: "1ms" });
  const { reference } = held.json;
  expect((await post(url, "/v1/claims/wait", { reference })).json).toMatchObject({ status: 400, reason: "held" });
  const earlyRenew = await post(url, "/v1/claims/renew", { reference: waiting.json.reference });
  expect(earlyRenew.json).toMatchObject({ status: 400, reason: "waiting" });
  for (const { json } of [waiting, held]) await post(url, "/v1/claims/release", { reference: json.reference });
  expect(server.stats().claims).toBe(0);
});

test("the server reads JSON like the language's own parser, or refuses it", () => {
  const plain = (value: unknown): unknown => {
    if (value instanceof Map) return Object.fromEntries([...value].map(([name, member]) => [name, plain(member)]));
    return Array.isArray(value) ? value.map(plain) : value;
  };
  for (const text of [
    '{"a":[1,-0,1.5e3,"\\u00e9\\n"],"b":{"c":null,"d":true}}',
    " [ ] ",
    '"x"',
    "0",
    "[[[]]]",
    '{"":0}',
  ]) {
    expect(plain(parseJsonToMaps(text, 4))).toEqual(JSON.parse(text));
  }
  for (const text of [
    "01",
    "+1",
    "1.",
    ".5",
    "--1",
    "1e",
    "tru",
    "nulll",
    "[1,]",
    '{"a":1,}',
    "{a:1}",
    "'x'",
    '{"a" 1}',
    "]",
  ]) {
    expect(() => parseJsonToMaps(text, 4)).toThrow();
    expect(() => JSON.parse(text)).toThrow();
  }
});

test("no malformed input is logged", () => {
  expect(logged).toEqual([]);
});
