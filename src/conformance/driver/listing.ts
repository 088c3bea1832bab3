/** What tools see. */

import assert from "node:assert/strict";
import { tagOf } from "../../ids.ts";
import type { Claim, ClaimView } from "../../spi/driver.ts";
import type { Scene } from "../scene.ts";
import { exclusive } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

export function listing(check: Check, { traits }: Subject): void {
  check("a listed claim shows what it wants, where it stands and its tag, but never its id", async (scene) => {
    const client = await scene.client();
    const label = 'ana@web-1 pid 12 "nightly", 50 % \u00e9';
    const [held, waiting] = [scene.claim("key", { label, tokens: 4 }), scene.claim("key", { label: "" })];
    const { token } = await client.hold(held);
    await client.queue(waiting);
    const views = await client.driver.list("", 10);
    assert.equal(views.length, 2);
    const [front, behind] = views as [ClaimView, ClaimView];
    for (const [view, claim] of [
      [front, held],
      [behind, waiting],
    ] as const) {
      assert.equal(view.tag, tagOf(claim.id));
      assert.equal(view.label, claim.label);
      assert.deepEqual(
        view.holds.map((hold) => ({ ...hold })),
        claim.holds,
      );
      assert.equal(view.ttlMs, claim.ttlMs);
      assert.ok(view.ageMs >= 0 && view.ageMs < 60_000, `an age of ${view.ageMs} ms`);
      assert.ok(!Object.hasOwn(view, "id"));
    }
    assert.equal(front.answer.state, "held");
    if (front.answer.state === "held" && traits.fencing) assert.equal(front.answer.token, token);
    assert.equal(behind.answer.state, "waiting");
    const text = JSON.stringify(views, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));
    for (const { id } of [held, waiting]) assert.ok(!text.includes(id), "an id is a secret");
    await client.release(held, waiting);
  });

  check("the age of a claim counts from when the store first saw it, not from a renewal", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key");
    await client.hold(claim);
    await scene.pause(60);
    await client.ask(claim);
    await client.claim(claim);
    const [view] = await client.driver.list("", 10);
    assert.ok((view?.ageMs ?? 0) >= 50, `an age of ${view?.ageMs} ms after 60 ms`);
    await client.release(claim);
  });

  check("only keys that begin with the prefix are listed", async (scene) => {
    const client = await scene.client();
    const keys = ["job:1", "job:2", "Job:1", "jo", "job%", "job_", "job*", "job:1/x", "\u00e9t\u00e9", "[a]"];
    const claims = keys.map((key) => scene.claim(key));
    for (const claim of claims) await client.hold(claim);
    for (const prefix of ["", "job", "job:", "job:1", "job%", "job_", "job*", "J", "\u00e9", "[a", "none", "job:1/x"]) {
      const found = (await client.driver.list(prefix, 100)).map((view) => view.holds[0].key);
      assert.deepEqual(found.sort(), keys.filter((key) => key.startsWith(prefix)).sort(), `prefix "${prefix}"`);
    }
    await client.release(...claims);
  });

  if (traits.fifo) {
    check("a line is listed from its front", async (scene) => {
      const client = await scene.client();
      const claims = Array.from({ length: 6 }, () => scene.claim("key"));
      for (const claim of claims) await client.claim(claim);
      const inOrder = async (expected: readonly Claim[]): Promise<void> => {
        const tags = (await client.driver.list("key", 10)).map(({ tag }) => tag);
        assert.deepEqual(
          tags,
          expected.map(({ id }) => tagOf(id)),
        );
      };
      await inOrder(claims);
      for (const claim of [...claims].reverse()) await client.ask(claim);
      await inOrder(claims);
      const [front] = claims.splice(2, 1) as [Claim];
      await client.release(front);
      await inOrder(claims);
      await client.release(...claims);
    });
  }

  check("a list comes in pages: none left out, none twice", async (scene) => {
    const client = await scene.client();
    const claims = Array.from({ length: 23 }, (_, index) => scene.claim(`key ${index % 4}`));
    for (const claim of claims) await client.claim(claim);
    for (const size of [1, 5, 23, 100]) {
      const found = (await allPages(scene, client.driver.list, size)).map(({ tag }) => tag);
      assert.deepEqual(found.sort(), claims.map(({ id }) => tagOf(id)).sort(), `pages of ${size}`);
    }
    await client.release(...claims);
  });

  if (!traits.manyKeys) return;

  check("a claim over several keys is listed once, under each of them, waiting or held", async (scene) => {
    const client = await scene.client();
    const [holder, all] = [scene.claim("x:1"), scene.claim(["x:1", "x:2", "y:1"].map(exclusive))];
    const shown = async (): Promise<void> => {
      for (const prefix of ["", "x", "x:1", "x:2", "y"]) {
        const tags = (await client.driver.list(prefix, 10)).map(({ tag }) => tag);
        assert.equal(tags.filter((tag) => tag === tagOf(all.id)).length, 1, `prefix "${prefix}"`);
      }
      assert.deepEqual(await client.driver.list("z", 10), []);
    };
    await client.hold(holder);
    await client.queue(all);
    await shown();
    await client.release(holder);
    await client.granted(all);
    await shown();
    await client.release(all);
  });
}

type List = (prefix: string, max: number, after?: string) => Promise<readonly ClaimView[]>;

async function allPages(scene: Scene, list: List, size: number): Promise<ClaimView[]> {
  const all: ClaimView[] = [];
  await scene.until("the last page", async () => {
    const page = await list("", size, all.at(-1)?.tag);
    assert.ok(page.length <= size, "a page has no more than was asked for");
    all.push(...page);
    return page.length < size;
  });
  return all;
}
