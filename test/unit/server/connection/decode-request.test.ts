// Every malformed request is refused with the reason; a valid one becomes a claim of the SPI.

import { expect, test } from "vitest";
import * as decode from "../../../../src/server/connection/decode-request.ts";
import { resolveLimits } from "../../../../src/server/limits.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";

const ID = randomId();
const LIMITS = resolveLimits({ ttlMs: 60_000 });
const decodeClaim = (...terms: readonly unknown[]): unknown => decode.decodeClaim(terms, 0, "host", LIMITS);

test("a claim without options has one token, no floor, waits, and has the label of its session", () => {
  expect(decodeClaim(ID, ["k"], 30_000)).toEqual({
    id: ID,
    locks: [{ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS }],
    ttlMs: 30_000,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "host",
  });
  expect(decodeClaim(ID, ["k"], "session", null)).toMatchObject({ ttlMs: "session" });
});

test("options replace the defaults", () => {
  const options = { tokens: 3, floor: "12", wait: false, label: "a\u0007b" };
  expect(decodeClaim(ID, [["k", 1, 2]], "session", options)).toMatchObject({
    locks: [{ key: "k", permits: 1, limit: 2 }],
    tokenCount: 3,
    floor: 12n,
    wait: false,
    label: "a b",
  });
});

test.for<[reason: string, ...terms: unknown[]]>([
  ["an id must be 26 characters", "short", ["k"], 1_000],
  ["locks must be an array", ID, "k", 1_000],
  ["a claim has 1 to 128 locks", ID, [], 1_000],
  ["a claim has 1 to 128 locks", ID, Array.from({ length: 129 }, (_, n) => `k${n}`), 1_000],
  ["locks must be sorted by key", ID, ["b", "a"], 1_000],
  ["locks must be sorted by key", ID, ["a", "a"], 1_000],
  ["permits must be from 1 to limit", ID, [["k", 3, 2]], 1_000],
  ["permits must be from 1 to limit", ID, [["k", 0, 2]], 1_000],
  ["permits must be from 1 to limit", ID, [["k", 1, ALL_PERMITS + 1]], 1_000],
  ["key", ID, [""], 1_000],
  ["ttl must be", ID, ["k"], "forever"],
  ["ttl must be", ID, ["k"], 0],
  ["ttl must be", ID, ["k"], Number.MAX_SAFE_INTEGER],
  ["the longest lease is 60 s", ID, ["k"], 60_001],
  ["options must be an object", ID, ["k"], 1_000, 1],
  ["options must be an object", ID, ["k"], 1_000, []],
  ["tokens must be from 1", ID, ["k"], 1_000, { tokens: 0 }],
  ["tokens must be from 1", ID, ["k"], 1_000, { tokens: "1" }],
  ["tokens must be from 1", ID, ["k"], 1_000, { tokens: 1_000_000_000 }],
  ["floor must be a decimal string", ID, ["k"], 1_000, { floor: 1 }],
  ["wait must be a boolean", ID, ["k"], 1_000, { wait: 1 }],
  ["label must be a string", ID, ["k"], 1_000, { label: 1 }],
])("a claim is refused: %s", ([reason, ...terms]) => {
  expect(() => decodeClaim(...terms)).toThrow(reason);
});

test("the number of a call must be a whole number", () => {
  expect(decode.decodeCallNumber(7)).toBe(7);
  expect(() => decode.decodeCallNumber("7")).toThrow("whole number");
});

test("a renewal may say how many tokens each claim should have", () => {
  const renew = (raw: unknown, counts: unknown): unknown => decode.decodeRenew(raw, counts, "host", LIMITS);
  expect(renew([ID, [ID, ["k"], 1_000]], [0, 65_536])).toMatchObject([{ tokenCount: 0 }, { tokenCount: 65_536 }]);
  for (const counts of [[1], [1, 2, 3], [1, -1], [1, 65_537], [1, "2"], 7, null]) {
    expect(() => renew([ID, ID], counts), JSON.stringify(counts)).toThrow(/token counts must be/);
  }
});

test("a claim may ask to be recalled", () => {
  expect(decodeClaim(ID, ["k"], 30_000, { recall: true })).toMatchObject({ recall: true });
  expect(decodeClaim(ID, ["k"], 30_000, { recall: false })).not.toHaveProperty("recall");
  expect(() => decodeClaim(ID, ["k"], 30_000, { recall: 1 })).toThrow("recall must be a boolean");
});

test("a renewal is an id, or the whole claim; no more fit a frame than the limit says", () => {
  const renew = (raw: unknown): unknown => decode.decodeRenew(raw, undefined, "host", LIMITS);
  expect(renew([ID, [ID, ["k"], 1_000]])).toMatchObject([
    { id: ID, claim: null },
    { id: ID, claim: { ttlMs: 1_000 } },
  ]);
  expect(renew(Array(5_000).fill(ID))).toHaveLength(5_000);
  expect(() => renew(Array(5_001).fill(ID))).toThrow("at most 5000 claims in a frame");
  expect(() => renew("all")).toThrow("claims must be an array");
});

test("a release is an id, or an id with the ttl of a claim without an answer", () => {
  const release = (raw: unknown): unknown => decode.decodeRelease(raw, LIMITS);
  expect(release([ID, [ID, 1_000]])).toEqual([
    { id: ID, unansweredTtl: undefined },
    { id: ID, unansweredTtl: 1_000 },
  ]);
  expect(decode.decodeIds([ID])).toEqual([ID]);
});

test("the remaining time of a detached lease is optional, and at least a millisecond", () => {
  expect(decode.decodeRemainingMs(undefined)).toBeUndefined();
  expect(decode.decodeRemainingMs(5)).toBe(5);
  for (const raw of [0, "5", Number.MAX_SAFE_INTEGER]) expect(() => decode.decodeRemainingMs(raw)).toThrow("from 1 to");
});

test("a revocation names key and token; the reason is cleaned, and the number of targets limited", () => {
  const revoke = (...targets: readonly unknown[]): unknown => decode.decodeRevoke(targets);
  expect(revoke(["k", "5"])).toEqual([{ key: "k", token: 5n, now: false, reason: "" }]);
  expect(revoke(["k", "5", true, "stuck\u0007?"])).toMatchObject([{ now: true, reason: "stuck ?" }]);
  expect(() => revoke(["k", 5])).toThrow("a token must be a decimal string");
  expect(revoke(...Array(64).fill(["k", "5"]))).toHaveLength(64);
  expect(() => revoke(...Array(65).fill(["k", "5"]))).toThrow("at most 64 targets");
});

test("a reclaim has the last state of each claim", () => {
  const reclaim = (state: unknown): unknown => decode.decodeReclaim([[[ID, ["k"], 1_000], state]], "host", LIMITS);
  expect(reclaim(["held", "9", 2, 500])).toMatchObject([
    { claim: { id: ID }, lastState: { state: "held", token: 9n, tokenCount: 2, remainingMs: 500 } },
  ]);
  expect(reclaim(["waiting", 4])).toMatchObject([{ lastState: { state: "waiting", arrival: 4 } }]);
  const malformed = [
    ["held", 9, 2, 500],
    ["held", "9", 0, 500],
    ["held", "9", 1e9, 500],
    ["held", "9", 2],
    ["waiting"],
  ];
  for (const state of malformed) expect(() => reclaim(state)).toThrow("a claim's state must be");
  expect(() => reclaim("held")).toThrow("a claim's state must be an array");
});

test("a listing has a filter by prefix or key, a size within the limit, and perhaps a cursor", () => {
  const list = (...terms: readonly [unknown, unknown, unknown?]): unknown =>
    decode.decodeListQuery(terms[0], terms[1], terms[2]);
  expect(list({ prefix: "a" }, 5_000, "tag")).toEqual([{ prefix: "a" }, 1_000, "tag"]);
  expect(list({ key: "a" }, 5)).toEqual([{ key: "a" }, 5, undefined]);
  for (const filter of [null, "a", {}, { key: "a", prefix: "a" }]) {
    expect(() => list(filter, 5)).toThrow("a list has a filter");
  }
  expect(() => list({ key: "a" }, -1)).toThrow("max must be a whole number");
  expect(() => list({ key: "a" }, 5, 1)).toThrow("after must be a tag");
});
