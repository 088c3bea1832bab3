import { expect, test } from "vitest";
import type { Entry } from "../../src/core/entry.ts";
import { listing, listTable } from "../../src/core/listing.ts";
import { Table } from "../../src/core/table.ts";
import type { Claim, Hold, ListFilter } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";

const hold = (key: string): Hold => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });

/** A table, and ids as tags. */
class Bench {
  readonly table = new Table();
  tags = 0;
  readonly tagOf = (id: string): string => {
    this.tags++;
    return id;
  };

  claim(id: string, ...keys: string[]): void {
    const holds = keys.map(hold) as unknown as Claim["holds"];
    const claim = { id, holds, ttlMs: 30_000, tokens: 1, floor: 0n, wait: true, label: "" };
    this.table.claim(claim, null, 0, 1_000);
  }

  list(filter: ListFilter, max: number, more: { after?: string; may?: (key: string) => boolean } = {}): string[] {
    return listTable(this.table, this.tagOf, { filter, max, ...more }, 0).map(({ tag }) => tag);
  }

  /** Page by page. */
  pages(max: number): string[] {
    const all: string[] = [];
    for (;;) {
      const after = all.at(-1);
      const page = this.list({ prefix: "" }, max, after === undefined ? {} : { after });
      all.push(...page);
      if (page.length < max) return all;
    }
  }
}

test("by key, in each line from the front, each claim once, whatever the size of a page", () => {
  const bench = new Bench();
  for (let n = 0; n < 40; n++) bench.claim(`${n}`, `k${(n * 7) % 13}`);
  bench.claim("both", "k1", "k5");
  bench.claim("waits", "k0", "k9");
  bench.claim("holds", "x", "y");
  const all = bench.list({ prefix: "" }, 1_000);
  expect(new Set(all).size).toBe(43);
  const keys = listTable(bench.table, bench.tagOf, { filter: { prefix: "" }, max: 1_000 }, 0).map(
    ({ holds }) => holds[0].key,
  );
  expect(keys).toEqual([...keys].sort());
  for (const max of [1, 2, 3, 7, 42, 43, 44]) expect(bench.pages(max), `${max} a page`).toEqual(all);
});

test("what stands in no line that is shown comes last: parked places, and claims that have not come to that key yet", () => {
  const bench = new Bench();
  bench.claim("a", "k");
  bench.claim("parked", "k");
  bench.claim("also", "k");
  bench.table.park("parked");
  bench.table.park("also");
  // it waits for k, and has not come to z
  bench.claim("later", "k", "z");
  expect(bench.list({ prefix: "" }, 10)).toEqual(["a", "later", "parked", "also"]);
  expect(bench.list({ prefix: "z" }, 10)).toEqual(["later"]);
  for (const max of [1, 2, 3]) expect(bench.pages(max)).toEqual(["a", "later", "parked", "also"]);
});

test("a claim is shown by the keys that may be seen alone, and found by those alone", () => {
  const bench = new Bench();
  bench.claim("both", "a/1", "b/1");
  bench.claim("b", "b/2");
  const may = (key: string): boolean => key.startsWith("b/");
  const seen = listTable(bench.table, bench.tagOf, { filter: { prefix: "" }, max: 10, may }, 0);
  expect(seen.map(({ tag, holds }) => [tag, holds.map(({ key }) => key)])).toEqual([
    ["both", ["b/1"]],
    ["b", ["b/2"]],
  ]);
  expect(bench.list({ prefix: "a/" }, 10, { may })).toEqual([]);
  expect(bench.list({ prefix: "" }, 1, { may, after: "both" })).toEqual(["b"]);
});

test("behind a claim that has gone, and is known still, a list goes on where that stood", () => {
  const bench = new Bench();
  const keys = { w: "b", x: "b", y: "b", z: "b", after: "c", behind: "d", last: "e" };
  bench.claim("first", "a");
  for (const [id, key] of Object.entries(keys)) bench.claim(id, key);
  for (const id of ["before", "both", "too"]) bench.claim(id, "a", "f");
  const goneOn = (id: string, prefix = ""): string[] => {
    const last = bench.table.entries.get(id) as Entry;
    expect(bench.table.release(id, 0, 1_000)).toBe(true);
    const steps = listing(bench.table, bench.tagOf, { filter: { prefix }, max: 20, after: id }, last);
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    return step.value.map(({ claim }) => claim.id);
  };
  // one in the midst of a line, its front, the last of it, one alone
  expect(goneOn("x")).toEqual(["y", "z", "after", "behind", "last"]);
  expect(goneOn("w")).toEqual(["y", "z", "after", "behind", "last"]);
  expect(goneOn("z")).toEqual(["after", "behind", "last"]);
  expect(goneOn("after")).toEqual(["behind", "last"]);
  expect(goneOn("last")).toEqual([]);
  // who stands in no line that is shown has no place there: the others of its kind come once more
  expect(goneOn("both", "f")).toEqual(["before", "too"]);
  expect(bench.pages(1)).toEqual(["first", "before", "too", "y", "behind"]);
});

test("a cursor that nobody knows starts again", () => {
  const bench = new Bench();
  bench.claim("a", "a");
  bench.claim("b", "b");
  expect(bench.list({ prefix: "" }, 10, { after: "nobody" })).toEqual(["a", "b"]);
});

test("a page of many keys is made in small steps, and the last claim of the one before need not be looked for", () => {
  const bench = new Bench();
  for (let n = 0; n < 5_000; n++) bench.claim(`${n}`, `k${String((n * 7_919) % 5_000).padStart(4, "0")}`);
  const count = (last?: string): [steps: number, ids: string[]] => {
    const entry = last === undefined ? undefined : bench.table.entries.get(last);
    const query = { filter: { prefix: "k" }, max: 10, ...(last !== undefined && { after: last }) };
    const steps = listing(bench.table, bench.tagOf, query, entry);
    let made = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) made++;
    return [made, step.value.map(({ claim }) => claim.id)];
  };
  const [steps, first] = count();
  expect(steps).toBeGreaterThanOrEqual(5);
  expect(bench.list({ prefix: "nothing" }, 10)).toEqual([]);
  bench.tags = 0;
  const [, second] = count(first.at(-1));
  expect(bench.tags).toBe(0);
  expect(second).toEqual(bench.list({ prefix: "" }, 20).slice(10));
  bench.tags = 0;
  expect(bench.list({ prefix: "" }, 10, { after: first.at(-1) as string })).toEqual(second);
  expect(bench.tags).toBeGreaterThan(0);
});

test("a lease that ran out unnoticed since the list was begun is listed with nothing left, not with less", () => {
  const bench = new Bench();
  bench.claim("a", "k");
  bench.claim("b", "k");
  const answers = listTable(bench.table, bench.tagOf, { filter: { prefix: "" }, max: 10 }, 30_001).map(
    ({ answer }) => answer,
  );
  expect(answers).toMatchObject([
    { state: "held", ttlMs: 0 },
    { state: "waiting", ttlMs: 0, recheckMs: 1 },
  ]);
});
