import { expect, test } from "vitest";
import type { ClaimState, SqlState } from "../../support/stores/sql-inspector.ts";
import { findSqlViolations } from "../../support/stores/sql-inspector.ts";

const NOW = 1_800_000_000_000_000n;
/** CRC-16/XMODEM of "123456789" is 0x31c3. */
const [KEY, BUCKET] = ["123456789", 0x31c3 % 1_024];

let arrivals = 0n;
/** A claim of the key, after those made before; held if it has a token. */
function claimOf(id: string, token: bigint, more: Partial<ClaimState> = {}): ClaimState {
  const end = { ttlMs: 30_000, expires: NOW + 20_000_000n };
  const place = { key: KEY, bucket: BUCKET, arrival: ++arrivals, permits: 1, limit: 1 };
  return { id, ...place, state: "o", ...end, token, tokenCount: 1, ...more };
}

function inspect(claims: readonly ClaimState[], more: Partial<SqlState> = {}): string[] {
  const lastTokens = new Map([[BUCKET, 100n]]);
  return findSqlViolations({ now: NOW, claims, bucketCount: 1_024, lastTokens, tombstones: new Map(), ...more });
}

const EXPIRED = { expires: NOW };

test.each<[string, ClaimState[]]>([
  ["no claim", []],
  ["a holder and a waiting claim", [claimOf("a", 1n), claimOf("b", 0n)]],
  ["holders of a semaphore", [claimOf("a", 1n, { limit: 2 }), claimOf("b", 2n, { limit: 2 })]],
  // b was alone, with a small limit, when it was granted
  ["a later holder with a larger limit", [claimOf("b", 1n), claimOf("a", 2n, { permits: 4, limit: 5 })]],
  ["a holder whose lease has ended, and one after it", [claimOf("a", 1n, EXPIRED), claimOf("b", 2n)]],
  ["one that waits for a lease that has ended", [claimOf("a", 1n, EXPIRED), claimOf("b", 0n)]],
  [
    "a detached and a revoked holder",
    [claimOf("a", 1n, { limit: 2, state: "d" }), claimOf("b", 2n, { limit: 2, state: "r" })],
  ],
  ["a range of tokens", [claimOf("a", 1n, { tokenCount: 3, limit: 2 }), claimOf("b", 4n, { limit: 2 })]],
])("%s is right", (_, claims) => {
  expect(inspect(claims)).toEqual([]);
});

test.each<[string, ClaimState[], RegExp]>([
  ["two holders", [claimOf("a", 1n), claimOf("b", 2n)], /held beyond its limit: b \(1 of 1\) makes it 2/],
  [
    "an overfull semaphore",
    [claimOf("a", 1n, { permits: 2, limit: 3 }), claimOf("b", 2n, { permits: 2, limit: 3 })],
    /held beyond/,
  ],
  ["a revoked holder beside another", [claimOf("a", 1n, { state: "r" }), claimOf("b", 2n)], /held beyond/],
  [
    "a holder that passed a waiting claim",
    [claimOf("a", 1n, { limit: 3 }), claimOf("w", 0n, { permits: 3, limit: 3 }), claimOf("b", 2n, { limit: 3 })],
    /b of .* is held before one/,
  ],
  [
    "a claim that waits without a reason",
    [claimOf("a", 1n, { limit: 2 }), claimOf("b", 0n, { limit: 2 })],
    /b of .* fits/,
  ],
  ["one token twice", [claimOf("a", 7n, { limit: 2 }), claimOf("b", 7n, { limit: 2 })], /b of .* was granted before/],
  [
    "ranges of tokens that overlap",
    [claimOf("a", 7n, { limit: 2, tokenCount: 3 }), claimOf("b", 9n, { limit: 2 })],
    /token 9, but 9 was granted/,
  ],
  [
    "a token above the bucket's last",
    [claimOf("a", 99n, { tokenCount: 3 })],
    /token 99, but the last of its bucket is 100/,
  ],
  [
    "one arrival twice",
    [claimOf("a", 1n, { limit: 2, arrival: 5n }), claimOf("b", 2n, { limit: 2, arrival: 5n })],
    /a and b .* one arrival/,
  ],
  ["another bucket", [claimOf("a", 0n, { bucket: 1, limit: 0 })], /in bucket 1/],
  ["a waiting claim that is detached", [claimOf("a", 0n, { state: "d", limit: 0 })], /waits as d/],
  ["a negative token", [claimOf("a", -1n, { limit: 0 })], /with token -1/],
  ["an unknown state", [claimOf("a", 1n, { state: "x" })], /state "x"/],
  ["a lease without an end", [claimOf("a", 1n, { expires: NOW + 40_000_000n })], /expires later than its ttl/],
])("%s: found", (_, claims, violation) => {
  expect(inspect(claims)).toEqual([expect.stringMatching(violation)]);
});

test("a tombstone of a claim that is there is found, unless it has ended", () => {
  const claims = [claimOf("a", 1n)];
  expect(inspect(claims, { tombstones: new Map([["a", NOW + 1n]]) })).toEqual([
    expect.stringMatching(/has a tombstone/),
  ]);
  expect(inspect(claims, { tombstones: new Map([["a", NOW]]) })).toEqual([]);
  expect(inspect(claims, { tombstones: new Map([["b", NOW + 1n]]) })).toEqual([]);
});

test("a missing bucket is found", () => {
  expect(inspect([], { bucketCount: 1_023 })).toEqual(["there are 1023 buckets"]);
});

test("what a test expects of its own is judged only on demand", () => {
  const state = { now: NOW, bucketCount: 1_024, lastTokens: new Map([[BUCKET, 1n]]), tombstones: new Map() };
  const left = [claimOf("a", 1n, EXPIRED)];
  expect(findSqlViolations({ ...state, claims: left })).toEqual([]);
  expect(findSqlViolations({ ...state, claims: left }, { expectEmpty: true })).toEqual([`a of "${KEY}" is left`]);
  const late = [claimOf("a", 1n, { expires: NOW + 40_000_000n })];
  expect(findSqlViolations({ ...state, claims: late }, { isClockStepped: true })).toEqual([]);
});
