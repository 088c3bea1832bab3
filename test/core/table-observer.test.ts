import { expect, test } from "vitest";
import type { Observer } from "../../src/core/observer.ts";
import { Table } from "../../src/core/table.ts";
import { Bench, claimOf, SECOND, TTL } from "./claims.ts";

/** A bench whose observer writes down "what id" and, of endings, for how long the claim was held. */
function observed(): { readonly bench: Bench; readonly seen: () => string[] } {
  const seen: string[] = [];
  const observer: Observer = {
    happened(what, entry, now) {
      const held = entry.held && what !== "granted" ? ` after ${now - entry.heldAt}` : "";
      seen.push(`${what} ${entry.claim.id}${held}`);
    },
  };
  return { bench: new Bench(new Table({ observer })), seen: () => seen.splice(0) };
}

test("an observer hears of a claim's whole life, and for how long it was held", () => {
  const { bench, seen } = observed();
  bench.pass(5);
  bench.stands("a", "k");
  bench.stands("b", "k");
  bench.stands("once", "k", { wait: false });
  expect(seen()).toEqual(["granted a", "waiting b"]);
  bench.pass(7).release("a");
  expect(seen()).toEqual(["released a after 7", "granted b"]);
  bench.renew("b");
  expect(bench.release("a")).toBe(false);
  expect(seen()).toEqual([]);
});

test("how a claim ended is told apart: given up, run out, client gone", () => {
  const { bench, seen } = observed();
  bench.stands("a", "k");
  bench.stands("left", "k");
  bench.stands("late", "k", { ttlMs: SECOND });
  bench.release("left");
  bench.pass(SECOND);
  seen();
  bench.table.drop("a", TTL, bench.now, bench.wall);
  expect(seen()).toEqual([`gone a after ${SECOND}`]);
  expect(bench.renew("a")).toEqual({ state: "none", reason: "expired" });
  bench.table.drop("a", TTL, bench.now, bench.wall);
  bench.stands("b", "k");
  bench.pass(TTL);
  expect(seen()).toEqual(["granted b", `expired b after ${TTL}`]);
});

test("a place that is given up or runs out never was held", () => {
  const { bench, seen } = observed();
  bench.stands("a", "k");
  bench.stands("left", "k");
  bench.stands("late", "k", { ttlMs: SECOND });
  bench.release("left");
  bench.pass(SECOND);
  expect(seen()).toEqual(["granted a", "waiting left", "waiting late", "left left", "expired late"]);
});

test("a revocation is told when it is made, and the end of the place later", () => {
  const { bench, seen } = observed();
  bench.stands("a", "k");
  bench.revoke("k", bench.token("a"));
  bench.pass(2).release("a");
  bench.stands("b", "k");
  bench.revoke("k", bench.token("b"), true);
  bench.stands("c", "k");
  const entry = bench.table.entries.get("c");
  if (entry !== undefined) bench.table.outstayed(entry, bench.now, bench.wall);
  expect(seen()).toEqual([
    "granted a",
    "revoked a after 0",
    "released a after 2",
    "granted b",
    "removed b after 0",
    "granted c",
    "outstayed c after 0",
  ]);
});

test("what is asserted after a restart is told, and whose assertion was worth less has run out", () => {
  const { bench, seen } = observed();
  bench.table.pause();
  bench.pass(0);
  bench.table.assertHeld(claimOf("low", "k"), "owner", bench.wall - 2, 1, TTL);
  bench.table.assertHeld(claimOf("high", "k"), "owner", bench.wall - 1, 1, TTL);
  expect(seen()).toEqual(["reclaimed low after 0", "reclaimed high after 0", "expired low after 0"]);
});

test("a claim that only the token ceiling stops is told as waiting, and as granted when the ceiling is raised", () => {
  const { bench, seen } = observed();
  bench.table.raise(0);
  bench.stands("a", "k");
  bench.stands("once", "k2", { wait: false });
  expect(seen()).toEqual(["waiting a"]);
  bench.table.raise(Number.POSITIVE_INFINITY);
  expect(seen()).toEqual(["granted a"]);
});
