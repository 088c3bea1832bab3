import { expect, test } from "vitest";
import type { Principal } from "../../../../src/auth/access-control.ts";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import type { Listing } from "../../../../src/gateway/dashboard/store-sampler.ts";
import { ALL_WANTED_MS, StoreSampler } from "../../../../src/gateway/dashboard/store-sampler.ts";
import type { ClaimView, ListQuery, Page } from "../../../../src/spi/driver.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { makeHolder, makeWaiter } from "../../cli/claim-views.ts";

interface TestStore {
  readonly clock: FakeClock;
  readonly sampler: StoreSampler;
  /** When each list began. */
  readonly lists: { readonly query: ListQuery; readonly at: number }[];
  /** Whose rights each list applied. */
  readonly scopes: (string | null)[];
  readonly all: (Listing | null)[];
  views: ClaimView[];
  tookMs: number;
  failure: Error | null;
}

function createStore(change: Partial<Pick<TestStore, "views" | "tookMs">> = {}): TestStore {
  const clock = new FakeClock();
  const [lists, all, scopes]: [TestStore["lists"], TestStore["all"], TestStore["scopes"]] = [[], [], []];
  const store: TestStore = {
    ...{ clock, lists, all, scopes, views: [makeHolder("k")], tookMs: 0, failure: null, ...change },
    sampler: new StoreSampler({
      clock,
      async list(query, max, account): Promise<Page<ClaimView>> {
        lists.push({ query, at: clock.now() });
        scopes.push(account?.name ?? null);
        clock.jump(store.tookMs);
        if (store.failure !== null) throw store.failure;
        const items = store.views.slice(0, max);
        return max < store.views.length ? { items, next: "more" } : { items };
      },
      onAll: (listing) => void all.push(listing),
    }),
  };
  return store;
}

const ALL = { prefix: "" };
/** More than are loaded: then each search is a list of its own. */
const MANY: readonly ClaimView[] = Array.from({ length: 2_001 }, (_, index) => makeHolder(`a/${index}`));

test("many viewers share one list, which begins at most every 2 s", async () => {
  const { sampler, clock, lists } = createStore();
  const readings = await Promise.all(Array.from({ length: 50 }, () => sampler.read(ALL, ANONYMOUS)));
  expect(new Set(readings.map(({ sequence }) => sequence)).size).toBe(1);
  for (let time = 0; time < 10_000; time += 500) {
    await sampler.read(ALL, ANONYMOUS);
    await clock.advance(500);
  }
  expect(lists.map(({ at }) => at - (lists[0]?.at ?? 0))).toEqual([0, 2_000, 4_000, 6_000, 8_000, 10_000]);
});

test("a slow store lists for at most 5 % of the time, whatever viewers search for", async () => {
  const { sampler, clock, lists } = createStore({ tookMs: 500, views: [...MANY] });
  await sampler.read(ALL, ANONYMOUS);
  const reads = ["a", "b", "c"].map((prefix) => sampler.read({ prefix }, ANONYMOUS));
  await clock.advance(10_000);
  await Promise.all(reads);
  const startedAt = clock.now();
  const countBefore = lists.length;
  for (let time = 0; time < 200_000; time += 1_000) {
    for (const prefix of ["a", "b", "c"]) await sampler.read({ prefix }, ANONYMOUS);
    await clock.advance(1_000);
  }
  const spentMs = (lists.length - countBefore) * 500;
  expect(spentMs / (clock.now() - startedAt)).toBeLessThanOrEqual(0.06);
  expect(spentMs).toBeGreaterThan(0);
  expect((await sampler.read(ALL, ANONYMOUS)).intervalMs).toBeGreaterThanOrEqual(20 * 4 * 500);
});

test("a search of which the list of all claims says everything takes no list; one key in order takes one if claims have several keys", async () => {
  const store = createStore({
    views: [makeHolder("a/1 b/1"), makeHolder("a/2"), makeWaiter("a/2"), makeWaiter("b/1")],
  });
  const { sampler, clock, lists } = store;
  await sampler.read(ALL, ANONYMOUS);
  for (const query of [{ prefix: "a/" }, { key: "a/2" }, { key: "c" }])
    expect(await sampler.read(query, ANONYMOUS)).toMatchObject({ sequence: 1, isComplete: true });
  expect(lists).toHaveLength(1);
  const reading = sampler.read({ key: "b/1" }, ANONYMOUS);
  await clock.advance(2_000);
  await reading;
  expect(lists.map(({ query }) => query)).toEqual([ALL, ALL, { key: "b/1" }]);
});

test("a new search of a large store is listed within 2 s, however long the rest is, and makes it longer", async () => {
  const { sampler, clock, lists } = createStore({ tookMs: 1_000, views: [...MANY] });
  await sampler.read(ALL, ANONYMOUS);
  await clock.advance(100);
  const reading = sampler.read({ key: "a/5" }, ANONYMOUS);
  await clock.advance(2_000);
  await reading;
  await clock.advance(60_000);
  expect(lists.slice(0, 3).map(({ at, query }) => [query, at - (lists[0]?.at ?? 0)])).toEqual([
    [ALL, 0],
    [{ key: "a/5" }, 2_000],
    // 20 s after the first round, and 20 s for the search
    [ALL, 40_000],
  ]);
});

test("lists end when no viewer asks, and a search before the list of all", async () => {
  const { sampler, clock, lists, all } = createStore({ views: [...MANY] });
  await sampler.read(ALL, ANONYMOUS);
  const search = sampler.read({ prefix: "a" }, ANONYMOUS);
  await clock.advance(2_000);
  await search;
  await clock.advance(ALL_WANTED_MS + 10_000);
  const searches = lists.filter(({ query }) => "prefix" in query && query.prefix === "a");
  expect(searches.length).toBeLessThanOrEqual(5);
  expect(all.length).toBe(lists.length - searches.length);
  const count = lists.length;
  await clock.advance(3_600_000);
  expect(lists).toHaveLength(count);
  expect(clock.pendingTimers).toBe(0);
  const later = sampler.read(ALL, ANONYMOUS);
  await clock.advance(0);
  await later;
  expect(lists).toHaveLength(count + 1);
  sampler.close();
});

test("at most 2,000 claims are loaded, and the listing says so", async () => {
  const few = createStore({ views: Array.from({ length: 2_000 }, (_, index) => makeHolder(`k${index}`)) });
  expect(await few.sampler.read(ALL, ANONYMOUS)).toMatchObject({ isComplete: true });
  const many = createStore({ views: Array.from({ length: 2_001 }, (_, index) => makeHolder(`k${index}`)) });
  const reading = await many.sampler.read(ALL, ANONYMOUS);
  expect([reading.views.length, reading.isComplete, many.lists.length]).toEqual([2_000, false, 1]);
});

test("a failed list leaves the last one, with the reason; without one, the reader gets the reason", async () => {
  const store = createStore({ views: [...MANY] });
  const { sampler, clock, all } = store;
  await sampler.read(ALL, ANONYMOUS);
  store.failure = new Error("the store is down");
  await clock.advance(2_000);
  expect(await sampler.read(ALL, ANONYMOUS)).toMatchObject({ sequence: 1, failure: "the store is down" });
  expect(all.at(-1)).toBeNull();
  const search = sampler.read({ prefix: "a" }, ANONYMOUS).catch((error: unknown) => error);
  await clock.advance(2_000);
  expect(await search).toMatchObject({ message: "the store is down" });
  store.failure = null;
  await clock.advance(2_000);
  expect(await sampler.read(ALL, ANONYMOUS)).toMatchObject({ failure: null });
});

test("a store that does not answer is waited for at most 10 s", async () => {
  const clock = new FakeClock();
  const sampler = new StoreSampler({ clock, list: () => new Promise(() => undefined), onAll: () => undefined });
  const reading = sampler.read(ALL, ANONYMOUS).catch((error: unknown) => error);
  await clock.advance(10_000);
  expect(await reading).toMatchObject({ code: "STORE" });
  sampler.close();
});

test("of many searches of one account the oldest are dropped; those of another account stay", async () => {
  const { sampler, clock, lists } = createStore({ views: [...MANY] });
  const other = { ...ANONYMOUS, name: "other" };
  await sampler.read(ALL, ANONYMOUS);
  const first = sampler.read({ prefix: "other" }, other);
  await clock.advance(2_000);
  await first;
  const sequences = new Set<number>();
  for (let count = 0; count < 25; count++) {
    const typed = sampler.read({ prefix: `${"x".repeat(count)}y` }, ANONYMOUS);
    sequences.add((await sampler.read({ prefix: "other" }, other)).sequence);
    await clock.advance(2_000);
    await typed;
  }
  expect(sequences.size, "it is listed again and again").toBeGreaterThan(20);
  const countBefore = lists.length;
  await clock.advance(2_000);
  expect(lists.length - countBefore).toBeLessThanOrEqual(10);
});

test("an account that waits for too many lists is refused the next one", async () => {
  const { sampler, clock } = createStore({ views: [...MANY] });
  await sampler.read(ALL, ANONYMOUS);
  const reads = Array.from({ length: 8 }, (_, index) => sampler.read({ prefix: `p${index}` }, ANONYMOUS));
  await expect(sampler.read({ prefix: "one more" }, ANONYMOUS)).rejects.toMatchObject({ code: "LIMIT" });
  await clock.advance(2_000);
  await Promise.all(reads);
});

test("of a large store an account with some keys gets a list of its own", async () => {
  const { sampler, clock, scopes } = createStore({ views: [...MANY] });
  const team: Principal = { ...ANONYMOUS, name: "team", can: (_right, key) => key.startsWith("team/") };
  await sampler.read(ALL, ANONYMOUS);
  const reading = sampler.read(ALL, team);
  await clock.advance(2_000);
  await reading;
  expect(scopes).toEqual([null, null, "team"]);
});

test("a store that hangs, and is back, is listed at once: a failed list does not count", async () => {
  const store = createStore({ views: [...MANY] });
  const { sampler, clock, lists } = store;
  await sampler.read(ALL, ANONYMOUS);
  store.failure = new Error("the store did not answer");
  store.tookMs = 25_000;
  await clock.advance(2_000);
  store.failure = null;
  store.tookMs = 0;
  const countBefore = lists.length;
  await clock.advance(2_000);
  expect(lists.length).toBeGreaterThan(countBefore);
  expect(await sampler.read(ALL, ANONYMOUS)).toMatchObject({ failure: null, intervalMs: 2_000 });
});
