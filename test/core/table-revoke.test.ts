import { expect, test } from "vitest";
import { Bench, claimOf, SECOND, TTL } from "./claims.ts";

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
