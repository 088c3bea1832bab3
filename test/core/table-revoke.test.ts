import { expect, test } from "vitest";
import type { Seat } from "../../src/core/seats.ts";
import { Bench, claimOf, hold, SECOND, TTL } from "./claims.ts";

test("a revoked claim cannot be renewed but keeps its place until it is released", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("b", "k");
  expect(bench.revoke("k", bench.token("a"))).toBe(true);
  expect(bench.revoked, "its owner is told").toEqual(["a"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "revoked" });
  expect(bench.claim(claimOf("a", "k"))).toEqual({ state: "none", reason: "revoked" });
  expect(bench.granted).toEqual([]);
  expect(bench.revoke("k", bench.token("a"))).toBe(false);
  expect(bench.release("a")).toBe(false);
  expect(bench.granted).toEqual(["b"]);
});

test("a revoked claim's place ends with its lease, and its reason is still known", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.revoke("k", bench.token("a"));
  bench.pass(20 * SECOND).renew("a");
  bench.stands("b", "k");
  bench.pass(10 * SECOND);
  expect(bench.granted).toEqual(["b"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "revoked" });
});

test("with `now` the claim is gone at once", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("b", "k");
  expect(bench.revoke("k", bench.token("a"), true)).toBe(true);
  expect(bench.granted).toEqual(["b"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "revoked" });
});

test("revoking finds holders only, by key and token", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("b", "k");
  expect([bench.revoke("k", 0), bench.revoke("k", 1), bench.revoke("x", bench.token("a"))]).toEqual([
    false,
    false,
    false,
  ]);
});

const MANY = 1_000_000;
const shared = [hold("k", 1, MANY)];

test("who holds with a token is found without a walk through those who hold", () => {
  const bench = new Bench();
  for (let at = 0; at < 500; at++) bench.stands(`h${at}`, shared, { tokens: 1 + (at % 5) });
  // the first one who asks has them looked through
  expect(bench.revoke("k", 1)).toBe(false);
  const { seats } = bench.table.mint.lines.get("k") as { seats: { first: Seat | null } };
  const first = seats.first;
  let walks = 0;
  Object.defineProperty(seats, "first", {
    configurable: true,
    get: () => {
      walks++;
      return first;
    },
  });
  for (let at = 499; at >= 250; at -= 50) {
    expect(bench.revoke("k", bench.token(`h${at}`) + (at % 5))).toBe(true);
    expect(bench.renew(`h${at}`)).toEqual({ state: "none", reason: "revoked" });
    expect(bench.revoke("k", bench.token(`h${at}`) + (at % 5) + 1_000_000)).toBe(false);
  }
  expect(walks).toBe(0);
});

test("holders are found who were granted later, and not any more when they have gone", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.revoke("k", 1);
  bench.stands("b", "k", { tokens: 7 });
  bench.release("a");
  expect(bench.granted).toEqual(["b"]);
  expect(bench.revoke("k", bench.token("a"))).toBe(false);
  expect(bench.revoke("k", bench.token("b") + 7)).toBe(false);
  expect(bench.revoke("k", bench.token("b") + 6, true)).toBe(true);
  expect(bench.revoke("k", bench.token("b"))).toBe(false);
});

test("of several who said after a restart that they held with one token each can be revoked", () => {
  const bench = new Bench();
  const { table } = bench;
  table.pause();
  bench.stands("other", "other");
  expect(bench.revoke("k", 500)).toBe(false);
  for (const id of ["a", "b", "c"]) {
    expect(table.assertHeld(claimOf(id, shared, { tokens: 3 }), "owner", 500, 3, TTL)).toBe(true);
  }
  for (let turn = 0; turn < 3; turn++) expect(bench.revoke("k", 501)).toBe(true);
  expect(bench.revoke("k", 501)).toBe(false);
  expect(bench.revoked.sort()).toEqual(["a", "b", "c"]);
  for (let turn = 0; turn < 3; turn++) expect(bench.revoke("k", 502, true)).toBe(true);
  expect(bench.revoke("k", 502, true)).toBe(false);
  expect(table.entries.size).toBe(1);
});

test("a detached claim ends when it was told to, whatever is waiting, unless it is renewed", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("b", "k");
  bench.stands("c", "other");
  expect([bench.detach("a", 2 * SECOND), bench.detach("c", 2 * SECOND)]).toEqual([true, true]);
  expect(bench.table.nextDue()).toBeLessThanOrEqual(bench.now + 2 * SECOND);
  bench.pass(2 * SECOND - 1);
  expect(bench.granted).toEqual([]);
  expect(bench.renew("c", "other")).toMatchObject({ state: "held", ttlMs: TTL });
  bench.pass(1);
  expect(bench.granted).toEqual(["b"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "expired" });
});

test("what is to be left of a detached claim is at most its own lease", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  expect(bench.detach("a", 2 * TTL)).toBe(true);
  bench.stands("b", "k");
  bench.pass(TTL - 1).renew("b");
  expect(bench.granted).toEqual([]);
  bench.pass(1);
  expect(bench.granted).toEqual(["b"]);
});

test("a detached claim has a full lease, no owner, and is remembered after its release", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.pass(10 * SECOND);
  expect(bench.detach("a")).toBe(true);
  expect(bench.table.entries.get("a")?.owner).toBeNull();
  expect(bench.renew("a", "other")).toMatchObject({ state: "held", ttlMs: TTL });
  expect(bench.table.entries.get("a")?.owner).toBeNull();
  bench.pass(SECOND);
  expect(bench.release("a")).toBe(true);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "released" });
});

test("only a held claim with a ttl, not revoked, can be detached", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  bench.stands("waits", "k");
  bench.stands("session", "k2", { ttlMs: "session" });
  bench.revoke("k", bench.token("a"));
  expect(["a", "waits", "session", "gone"].map((id) => bench.detach(id))).toEqual([false, false, false, false]);
});

test("a claim that was held for too long is revoked once, and not when it is gone", () => {
  const bench = new Bench();
  bench.stands("a", "k");
  const a = bench.table.entries.get("a");
  if (a === undefined) throw new Error("a is not there");
  const outstays = (): void => {
    bench.table.outstayed(a, bench.now, bench.wall);
    bench.collect();
  };
  outstays();
  expect(bench.revoked, "its owner is told").toEqual(["a"]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "maxHold" });
  outstays();
  expect(bench.revoked, "once").toEqual(["a"]);
  bench.release("a");
  bench.stands("a", "k");
  outstays();
  expect(bench.revoked, "another claim by that id is not meant").toEqual(["a"]);
});
