/** Lists of claims, for tools. */

import assert from "node:assert/strict";
import type { Claim, ClaimView, Driver, ListQuery } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { DefineTest, TestContext } from "../context.ts";
import { exclusive } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

export function testList(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a listed claim shows its lock specs, its state and its tag, but never its id", async (context) => {
    const client = await context.openClient();
    const label = 'ana@web-1 pid 12 "nightly", 50 % \u00e9';
    const [held, waiting] = [
      context.createClaim("key", { label, tokenCount: 4 }),
      context.createClaim("key", { label: "" }),
    ];
    const { token } = await client.claimHeld(held);
    await client.claimWaiting(waiting);
    const views = (await client.driver.list({ prefix: "" }, { max: 10 })).items;
    assert.equal(views.length, 2);
    const [front, behind] = views as [ClaimView, ClaimView];
    for (const [view, claim] of [
      [front, held],
      [behind, waiting],
    ] as const) {
      assert.equal(view.tag, publicTag(claim.id));
      assert.equal(view.label, claim.label);
      assert.deepEqual(
        view.locks.map((hold) => ({ ...hold })),
        claim.locks,
      );
      assert.equal(view.ttlMs, claim.ttlMs);
      assert.ok(view.ageMs >= 0 && view.ageMs < 60_000, `an age of ${view.ageMs} ms`);
      assert.ok(!Object.hasOwn(view, "id"));
    }
    assert.equal(front.answer.state, "held");
    if (front.answer.state === "held" && traits.fencing) assert.equal(front.answer.token, token);
    assert.equal(behind.answer.state, "waiting");
    assert.equal(behind.heldMs, undefined, "a waiting claim has not been held");
    const text = JSON.stringify(views, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));
    for (const { id } of [held, waiting]) assert.ok(!text.includes(id), "an id is a secret");
    await client.release(held, waiting);
  });

  test("the age of a claim counts from when the store first saw it, not from a renewal", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    await client.claimHeld(claim);
    await context.sleep(60);
    await client.renew(claim);
    await client.claim(claim);
    const [view] = (await client.driver.list({ prefix: "" }, { max: 10 })).items;
    assert.ok((view?.ageMs ?? 0) >= 50, `an age of ${view?.ageMs} ms after 60 ms`);
    await client.release(claim);
  });

  test("only keys that begin with the prefix are listed", async (context) => {
    const client = await context.openClient();
    const keys = ["job:1", "job:2", "Job:1", "jo", "job%", "job_", "job*", "job:1/x", "\u00e9t\u00e9", "[a]"];
    const claims = keys.map((key) => context.createClaim(key));
    for (const claim of claims) await client.claimHeld(claim);
    for (const prefix of ["", "job", "job:", "job:1", "job%", "job_", "job*", "J", "\u00e9", "[a", "none", "job:1/x"]) {
      const listed = (await client.driver.list({ prefix }, { max: 100 })).items.map((view) => view.locks[0].key);
      assert.deepEqual(listed.sort(), keys.filter((key) => key.startsWith(prefix)).sort(), `prefix "${prefix}"`);
    }
    await client.release(...claims);
  });

  test("the queue of one key is listed without those of keys that begin alike", async (context) => {
    const client = await context.openClient();
    const alike = ["key", "key:1", "key:", "ke", "Key", "key:1/x"].map((key) => context.createClaim(key));
    for (const claim of alike) await client.claimHeld(claim);
    const tagsOf = async (key: string): Promise<string[]> =>
      (await client.driver.list({ key }, { max: 10 })).items.map(({ tag }) => tag);
    for (const { id, locks } of alike) assert.deepEqual(await tagsOf(locks[0].key), [publicTag(id)]);
    for (const key of ["", "k", "key:1/", "none"]) assert.deepEqual(await tagsOf(key), [], `key "${key}"`);
    await client.release(...alike);
    assert.deepEqual(await tagsOf("key"), []);
  });

  test("the queue of one key shows its holder and waiters, in order", async (context) => {
    const [client, otherClient] = [await context.openClient(), await context.openClient()];
    const claims = [
      context.createClaim("key", { label: "the first" }),
      ...Array.from({ length: 4 }, () => context.createClaim("key")),
    ];
    const [first, ...others] = claims as [Claim, ...Claim[]];
    const { token } = await client.claimHeld(first);
    for (const claim of others) await client.claimWaiting(claim);
    for (const { driver } of traits.list === "own" ? [client] : [client, otherClient]) {
      const views = (await driver.list({ key: "key" }, { max: 10 })).items;
      assert.deepEqual(views.map(({ tag }) => tag).sort(), claims.map(({ id }) => publicTag(id)).sort());
      assert.deepEqual(
        views.map(({ answer }) => answer.state),
        ["held", "waiting", "waiting", "waiting", "waiting"],
      );
      const [front] = views as [ClaimView];
      assert.deepEqual([front.tag, front.label, front.locks[0]], [publicTag(first.id), "the first", first.locks[0]]);
      if (front.answer.state === "held" && traits.fencing) assert.equal(front.answer.token, token);
      assert.ok(front.ageMs >= 0);
      const short = (await driver.list({ key: "key" }, { max: 2 })).items;
      assert.equal(short.length, 2, "no more than `max`");
      const pages = await allPages(context, driver, { key: "key" }, 2);
      assert.deepEqual(pages.map(({ tag }) => tag).sort(), views.map(({ tag }) => tag).sort());
    }
    await client.release(...claims);
  });

  if (traits.list === "own") {
    test("a client lists its own claims only", async (context) => {
      const [client, otherClient] = [await context.openClient(), await context.openClient()];
      const [held, waiting] = [context.createClaim("key"), context.createClaim("key")];
      await client.claimHeld(held);
      await otherClient.claimWaiting(waiting);
      for (const [{ driver }, { id }] of [
        [client, held],
        [otherClient, waiting],
      ] as const) {
        for (const query of [{ key: "key" }, { prefix: "" }]) {
          const tags = (await driver.list(query, { max: 10 })).items.map(({ tag }) => tag);
          assert.deepEqual(tags, [publicTag(id)]);
        }
      }
      await otherClient.release(waiting);
      await client.release(held);
    });
  }

  test("an abandoned list settles", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    await client.claimHeld(claim);
    for (const query of [{ key: "key" }, { prefix: "" }]) {
      const abort = new AbortController();
      let isSettled = false;
      void client.driver
        .list(query, { max: 10, signal: abort.signal })
        .catch(() => undefined)
        .then(() => {
          isSettled = true;
        });
      abort.abort(new RangeError("enough"));
      assert.ok(await context.waitUntil("the list to settle", () => isSettled));
    }
    await client.release(claim);
  });

  if (traits.fifo) {
    test("a queue is listed from its front", async (context) => {
      const client = await context.openClient();
      const claims = Array.from({ length: 6 }, () => context.createClaim("key"));
      for (const claim of claims) await client.claim(claim);
      const inOrder = async (expected: readonly Claim[]): Promise<void> => {
        const tags = (await client.driver.list({ prefix: "key" }, { max: 10 })).items.map(({ tag }) => tag);
        assert.deepEqual(
          tags,
          expected.map(({ id }) => publicTag(id)),
        );
        const queue = (await client.driver.list({ key: "key" }, { max: 10 })).items.map(({ tag }) => tag);
        assert.deepEqual(queue, tags, "the queue of the key");
      };
      await inOrder(claims);
      for (const claim of [...claims].reverse()) await client.renew(claim);
      await inOrder(claims);
      const [front] = claims.splice(2, 1) as [Claim];
      await client.release(front);
      await inOrder(claims);
      await client.release(...claims);
    });
  }

  test("a list comes in pages: none left out, none twice", async (context) => {
    const client = await context.openClient();
    const claims = Array.from({ length: 23 }, (_, index) => context.createClaim(`key ${index % 4}`));
    for (const claim of claims) await client.claim(claim);
    for (const size of [1, 5, 23, 100]) {
      const listed = (await allPages(context, client.driver, { prefix: "" }, size)).map(({ tag }) => tag);
      assert.deepEqual(listed.sort(), claims.map(({ id }) => publicTag(id)).sort(), `pages of ${size}`);
    }
    await client.release(...claims);
  });

  if (!traits.manyKeys) return;

  test("a claim over several keys is listed once, under each of them, waiting or held", async (context) => {
    const client = await context.openClient();
    const [holder, all] = [context.createClaim("x:1"), context.createClaim(["x:1", "x:2", "y:1"].map(exclusive))];
    const listShownTags = async (): Promise<void> => {
      for (const prefix of ["", "x", "x:1", "x:2", "y"]) {
        const tags = (await client.driver.list({ prefix }, { max: 10 })).items.map(({ tag }) => tag);
        assert.equal(tags.filter((tag) => tag === publicTag(all.id)).length, 1, `prefix "${prefix}"`);
      }
      assert.deepEqual((await client.driver.list({ prefix: "z" }, { max: 10 })).items, []);
    };
    await client.claimHeld(holder);
    await client.claimWaiting(all);
    await listShownTags();
    await client.release(holder);
    await client.waitForGrant(all);
    await listShownTags();
    await client.release(all);
  });
}

async function allPages(context: TestContext, driver: Driver, query: ListQuery, size: number): Promise<ClaimView[]> {
  const all: ClaimView[] = [];
  let after: string | undefined;
  await context.waitUntil("the last page", async () => {
    const page = await driver.list(query, { max: size, after });
    assert.ok(page.items.length <= size, "a page has no more than `max`");
    all.push(...page.items);
    after = page.next;
    return after === undefined;
  });
  return all;
}
