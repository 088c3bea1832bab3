// Bodies of requests: what they become, and the message for each kind of fault.

import { expect, test } from "vitest";
import { createOpenApiDocument } from "../../../../src/gateway/http/openapi.ts";
import { Problem } from "../../../../src/gateway/http/problem.ts";
import {
  parseClaimRequest,
  parseReleaseRequest,
  parseRevokeRequest,
  parseWaitRequest,
} from "../../../../src/gateway/http/schemas.ts";
import { DEFAULT_LIMITS } from "../../../../src/server/limits.ts";
import type { Traits } from "../../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";

const TRAITS: Traits = {
  lease: { claim: true, sessionMs: 5_000 },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "restart",
  recall: false,
};
const parse = (body: object, traits: Traits = TRAITS) => parseClaimRequest(body, DEFAULT_LIMITS, traits, "http");

function catchProblem(call: () => unknown): Problem {
  try {
    call();
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  throw new Error("no problem");
}

test("a claim has defaults for all that its body leaves out", () => {
  const { claim, waitMs } = parse({ key: "k" });
  expect(waitMs).toBe(25_000);
  expect(claim).toMatchObject({ ttlMs: 30_000, wait: true, label: "http", tokenCount: 1, floor: 0n });
  expect(claim.locks).toEqual([{ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS }]);
});

test("keys are sorted, and each counts once", () => {
  expect(parse({ keys: ["b", "a", "b"] }).claim.locks.map(({ key }) => key)).toEqual(["a", "b"]);
});

test.each([
  [{ mode: "shared" }, { permits: 1, limit: ALL_PERMITS }],
  [{ limit: 3 }, { permits: 1, limit: 3 }],
  [
    { limit: 3, permits: 3, mode: "semaphore" },
    { permits: 3, limit: 3 },
  ],
])("%j is a claim on %j", (body, lock) => {
  expect(parse({ key: "k", ...body }).claim.locks).toEqual([{ key: "k", ...lock }]);
});

test("a request waits at most 25 s, and not at all with wait 0", () => {
  expect(parse({ key: "k", wait: "1h" }).waitMs).toBe(25_000);
  expect(parse({ key: "k", wait: 0 }).claim.wait).toBe(false);
});

test.each([
  [{}, "missing", "key is missing"],
  [{ key: "a", keys: ["b"] }, "conflict", "keys cannot be combined with key"],
  [{ key: 5 }, "malformed", "key must be a string"],
  [{ key: "" }, "malformed", "key must not be empty"],
  [{ keys: ["a", ""] }, "malformed", "keys[1] must not be empty"],
  [{ keys: "a" }, "malformed", "keys must be an array"],
  [{ keys: [] }, "range", "keys must have at least 1 element"],
  [{ key: "a", ttl: 99 }, "range", "ttl must be from 100 ms to 30 days"],
  [
    { key: "a", ttl: "session" },
    "session",
    "HTTP has no sessions: use a duration (at most 30 days), and renew it if needed",
  ],
  [{ key: "a", ttl: "1w" }, "malformed", 'ttl must be milliseconds or a string such as "30s", "5m" or "1h"'],
  [{ key: "a", wait: -1 }, "malformed", 'wait must be milliseconds or a string such as "30s", "5m" or "1h"'],
  [{ key: "a", wait: true }, "malformed", 'wait must be milliseconds or a string such as "30s", "5m" or "1h"'],
  [{ key: "a", mode: "read" }, "malformed", 'mode must be "exclusive", "shared" or "semaphore"'],
  [{ key: "a", mode: "semaphore" }, "missing", "limit is missing"],
  [{ key: "a", limit: 0 }, "range", "limit must be at least 1"],
  [{ key: "a", limit: "3" }, "range", "limit must be an integer"],
  [{ key: "a", limit: 1.5 }, "range", "limit must be an integer"],
  [{ key: "a", limit: 2 ** 31 }, "range", "limit must be at most 1073741823"],
  [{ key: "a", limit: 2, permits: 3 }, "range", "permits must be an integer from 1 to 2"],
  [{ key: "a", permits: 1 }, "conflict", 'permits belongs to mode "semaphore"'],
  [{ key: "a", mode: "shared", limit: 2 }, "conflict", 'limit belongs to mode "semaphore"'],
  [{ key: "a", label: 5 }, "malformed", "label must be a string"],
])("the claim %j is refused as %s: %s", (body, reason, message) => {
  expect(catchProblem(() => parse(body))).toMatchObject({ code: "INVALID", reason, message });
});

test.each([
  [{ manyKeys: false }, { keys: ["a", "b"] }, "keys"],
  [{ permits: "one" as const }, { key: "a", mode: "shared" }, "mode"],
  [{ permits: "shared" as const }, { key: "a", limit: 2 }, "mode"],
])("on a store with %j the claim %j is not supported", (traits, body, field) => {
  const problem = catchProblem(() => parse(body, { ...TRAITS, ...traits }));
  expect(problem).toMatchObject({ code: "UNSUPPORTED", details: { field } });
});

test.each([
  [{ key: "k", token: 5, reason: "r" }, "malformed", "token must be a string"],
  [{ key: "k", token: "-1", reason: "r" }, "malformed", "token must be a decimal string"],
  [{ key: "k", token: "5" }, "missing", "reason is missing"],
  [{ key: "k", token: "5", reason: " " }, "range", "reason must have at least 1 character"],
  [{ key: "k", token: "5", reason: "x".repeat(257) }, "range", "reason must have at most 256 characters"],
  [{ key: "k", token: "5", reason: "r", now: "yes" }, "malformed", "now must be true or false"],
])("the revocation %j is refused as %s: %s", (body, reason, message) => {
  expect(catchProblem(() => parseRevokeRequest(body))).toMatchObject({ code: "INVALID", reason, message });
});

test("the reason of a revocation has no control characters", () => {
  expect(parseRevokeRequest({ key: "k", token: "17", reason: " a\u001bb " })).toEqual({
    key: "k",
    token: 17n,
    reason: "a b",
    now: false,
  });
});

test("a reference that is missing or damaged is refused without its text", () => {
  expect(catchProblem(() => parseWaitRequest({}))).toMatchObject({
    reason: "missing",
    message: "reference is missing",
  });
  const problem = catchProblem(() => parseReleaseRequest({ reference: "hf1.secret.AAAAAAAA" }));
  expect(problem).toMatchObject({ reason: "malformed", message: "reference is damaged: it was cut or altered" });
});

test("the schemas refer to each other, and each has the description of its own", () => {
  const { components } = createOpenApiDocument("0.1.0") as { components: { schemas: Record<string, object> } };
  const { ClaimRequest, Duration } = components.schemas;
  const ttl = { allOf: [{ $ref: "#/components/schemas/Duration" }, { description: expect.stringMatching(/lease/) }] };
  expect(ClaimRequest).toMatchObject({ properties: { ttl } });
  expect(Duration).toMatchObject({ description: expect.stringMatching(/^Milliseconds/) });
});
