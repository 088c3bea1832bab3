import { expect, test } from "vitest";
import type { ClaimRecord } from "../../../src/lock-table/key-queue.ts";
import { listSteps, listTable } from "../../../src/lock-table/listing.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import type { Claim, ListQuery, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const lockSpec = (key: string): LockSpec => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });

/** A table, and ids as tags. */
class ListingFixture {
  readonly table = new LockTable();
  tags = 0;
  readonly tagOf = (id: string): string => {
    this.tags++;
    return id;
  };

  claim(id: string, ...keys: string[]): void {
    const lockSpecs = keys.map(lockSpec) as unknown as Claim["locks"];
    const claim = { id, locks: lockSpecs, ttlMs: 30_000, tokenCount: 1, floor: 0n, wait: true, label: "" };
    this.table.claim(claim, { owner: null }, { now: 0, micros: 1_000 });
  }

  list(query: ListQuery, max: number, options: { after?: string; canSee?: (key: string) => boolean } = {}): string[] {
    return listTable(this.table, this.tagOf, { query, max, ...options }, 0).items.map(({ tag }) => tag);
  }

  /** Page by page. */
  collectPages(max: number): string[] {
    const ids: string[] = [];
    for (;;) {
      const after = ids.at(-1);
      const page = this.list({ prefix: "" }, max, after === undefined ? {} : { after });
      ids.push(...page);
      if (page.length < max) return ids;
    }
  }
}

test("claims are listed by key, in each queue from the front, each once, whatever the page size", () => {
  const fixture = new ListingFixture();
  for (let n = 0; n < 40; n++) fixture.claim(`${n}`, `k${(n * 7) % 13}`);
  fixture.claim("both", "k1", "k5");
  fixture.claim("waits", "k0", "k9");
  fixture.claim("holds", "x", "y");
  const allIds = fixture.list({ prefix: "" }, 1_000);
  expect(new Set(allIds).size).toBe(43);
  const keys = listTable(fixture.table, fixture.tagOf, { query: { prefix: "" }, max: 1_000 }, 0).items.map(
    ({ locks }) => locks[0].key,
  );
  expect(keys).toEqual([...keys].sort());
  for (const max of [1, 2, 3, 7, 42, 43, 44]) expect(fixture.collectPages(max), `${max} a page`).toEqual(allIds);
});

test("claims without an entry in a visible queue come last: suspended ones, and those that have not reached that key", () => {
  const fixture = new ListingFixture();
  fixture.claim("a", "k");
  fixture.claim("parked", "k");
  fixture.claim("also", "k");
  fixture.table.suspendWaiter("parked");
  fixture.table.suspendWaiter("also");
  // it waits for k, and has not reached z
  fixture.claim("later", "k", "z");
  expect(fixture.list({ prefix: "" }, 10)).toEqual(["a", "later", "parked", "also"]);
  expect(fixture.list({ prefix: "z" }, 10)).toEqual(["later"]);
  for (const max of [1, 2, 3]) expect(fixture.collectPages(max)).toEqual(["a", "later", "parked", "also"]);
});

test("a claim is listed with its visible keys only, and found by those only", () => {
  const fixture = new ListingFixture();
  fixture.claim("both", "a/1", "b/1");
  fixture.claim("b", "b/2");
  const canSee = (key: string): boolean => key.startsWith("b/");
  const seenClaimViews = listTable(fixture.table, fixture.tagOf, { query: { prefix: "" }, max: 10, canSee }, 0).items;
  expect(seenClaimViews.map(({ tag, locks }) => [tag, locks.map(({ key }) => key)])).toEqual([
    ["both", ["b/1"]],
    ["b", ["b/2"]],
  ]);
  expect(fixture.list({ prefix: "a/" }, 10, { canSee })).toEqual([]);
  expect(fixture.list({ prefix: "" }, 1, { canSee, after: "both" })).toEqual(["b"]);
});

test("the queue of a key is listed without the claims that may not be shown", () => {
  const fixture = new ListingFixture();
  for (const id of ["a1", "b1", "a2", "b2"]) fixture.claim(id, "k");
  const canSeeClaim = ({ claim }: ClaimRecord): boolean => claim.id.startsWith("a");
  const query = { query: { key: "k" }, max: 1, canSeeClaim };
  const first = listTable(fixture.table, fixture.tagOf, query, 0);
  expect(first).toMatchObject({ items: [{ tag: "a1" }], next: "a1" });
  const rest = listTable(fixture.table, fixture.tagOf, { ...query, after: "a1" }, 0);
  expect(rest.items.map(({ tag }) => tag)).toEqual(["a2"]);
});

test("after the end of the cursor's claim a list continues from its last position", () => {
  const fixture = new ListingFixture();
  const keys = { w: "b", x: "b", y: "b", z: "b", after: "c", behind: "d", last: "e" };
  fixture.claim("first", "a");
  for (const [id, key] of Object.entries(keys)) fixture.claim(id, key);
  for (const id of ["before", "both", "too"]) fixture.claim(id, "a", "f");
  const listAfter = (id: string, prefix = ""): string[] => {
    const last = fixture.table.records.get(id) as ClaimRecord;
    expect(fixture.table.release(id, { now: 0, micros: 1_000 })).toBe(true);
    const steps = listSteps(fixture.table, fixture.tagOf, { query: { prefix }, max: 20, after: id }, last);
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    return step.value.map(({ claim }) => claim.id);
  };
  // a claim inside a queue, at its front, at its end, and one alone
  expect(listAfter("x")).toEqual(["y", "z", "after", "behind", "last"]);
  expect(listAfter("w")).toEqual(["y", "z", "after", "behind", "last"]);
  expect(listAfter("z")).toEqual(["after", "behind", "last"]);
  expect(listAfter("after")).toEqual(["behind", "last"]);
  expect(listAfter("last")).toEqual([]);
  // a claim in no visible queue has no position there: the others of its kind are listed once more
  expect(listAfter("both", "f")).toEqual(["before", "too"]);
  expect(fixture.collectPages(1)).toEqual(["first", "before", "too", "y", "behind"]);
});

test("an unknown cursor starts from the beginning", () => {
  const fixture = new ListingFixture();
  fixture.claim("a", "a");
  fixture.claim("b", "b");
  expect(fixture.list({ prefix: "" }, 10, { after: "nobody" })).toEqual(["a", "b"]);
});

test("a page of many keys is made in small steps, without a search for the last claim of the previous page", () => {
  const fixture = new ListingFixture();
  for (let n = 0; n < 5_000; n++) fixture.claim(`${n}`, `k${String((n * 7_919) % 5_000).padStart(4, "0")}`);
  const count = (last?: string): [steps: number, ids: string[]] => {
    const record = last === undefined ? undefined : fixture.table.records.get(last);
    const query = { query: { prefix: "k" }, max: 10, ...(last !== undefined && { after: last }) };
    const steps = listSteps(fixture.table, fixture.tagOf, query, record);
    let createdCount = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) createdCount++;
    return [createdCount, step.value.map(({ claim }) => claim.id)];
  };
  const [steps, first] = count();
  expect(steps).toBeGreaterThanOrEqual(5);
  expect(fixture.list({ prefix: "nothing" }, 10)).toEqual([]);
  fixture.tags = 0;
  const [, second] = count(first.at(-1));
  expect(fixture.tags).toBe(0);
  expect(second).toEqual(fixture.list({ prefix: "" }, 20).slice(10));
  fixture.tags = 0;
  expect(fixture.list({ prefix: "" }, 10, { after: first.at(-1) as string })).toEqual(second);
  expect(fixture.tags).toBeGreaterThan(0);
});

test("a lease that has expired unprocessed since the list began is listed with zero left, not less", () => {
  const fixture = new ListingFixture();
  fixture.claim("a", "k");
  fixture.claim("b", "k");
  const answers = listTable(fixture.table, fixture.tagOf, { query: { prefix: "" }, max: 10 }, 30_001).items.map(
    ({ answer }) => answer,
  );
  expect(answers).toMatchObject([
    { state: "held", remainingMs: 0 },
    { state: "waiting", remainingMs: 0, recheckMs: 1 },
  ]);
});
