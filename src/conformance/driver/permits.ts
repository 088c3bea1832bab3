/** Readers, writers and semaphores: how many may hold one key together. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { Client, Terms } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

const READ: Terms = { permits: 1 };

export function permits(check: Check, subject: Subject): void {
  if (subject.traits.permits === "one") return;
  readersAndWriters(check, subject);
  if (subject.traits.permits === "any") semaphores(check, subject);
}

function readersAndWriters(check: Check, { traits }: Subject): void {
  check("readers share; a writer excludes readers and writers", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [first, second, writer] = [scene.claim("key", READ), scene.claim("key", READ), scene.claim("key")];
    await one.hold(first);
    await other.hold(second);
    assert.ok(!(await other.isFree("key")));
    await other.queue(writer);
    await one.release(first);
    assert.equal((await other.ask(writer)).state, "waiting");
    await other.release(second);
    await other.granted(writer);
    assert.ok(!(await one.isFree("key", READ)));
    assert.ok(!(await one.isFree("key")));
    await other.release(writer);
  });

  if (!traits.fifo) return;

  check("readers behind a waiting writer wait for it, then go in together", async (scene) => {
    const client = await scene.client();
    const [first, writer, second, third, last] = [
      scene.claim("key", READ),
      scene.claim("key"),
      scene.claim("key", READ),
      scene.claim("key", READ),
      scene.claim("key"),
    ];
    await client.hold(first);
    for (const claim of [writer, second, third, last]) await client.queue(claim);
    assert.ok(!(await client.isFree("key", READ)), "a waiting writer is not overtaken");
    await client.release(first);
    await client.granted(writer);
    assert.deepEqual(await states(client, second, third, last), ["waiting", "waiting", "waiting"]);
    await client.release(writer);
    await client.granted(second);
    await client.granted(third);
    assert.equal((await client.ask(last)).state, "waiting");
    await client.release(second, third);
    await client.granted(last);
    await client.release(last);
  });

  check("when a waiting writer leaves, the readers behind it go in", async (scene) => {
    const client = await scene.client();
    const [first, writer, second] = [scene.claim("key", READ), scene.claim("key"), scene.claim("key", READ)];
    await client.hold(first);
    await client.queue(writer);
    await client.queue(second);
    await client.release(writer);
    await client.granted(second);
    assert.equal((await client.ask(first)).state, "held");
    await client.release(first, second);
  });
}

function semaphores(check: Check, { traits }: Subject): void {
  check("a semaphore lets in as many as it has permits", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [a, b, c, d] = [permit(), permit(), permit(), permit()].map((terms) => scene.claim("key", terms)) as Four;
    for (const [client, claim] of [
      [one, a],
      [other, b],
      [one, c],
    ] as const)
      await client.hold(claim);
    await other.queue(d);
    assert.ok(!(await one.isFree("key", permit())));
    assert.equal((await one.claim(a)).state, "held", "asking again takes no second permit");
    await one.release(a);
    await other.granted(d);
    await other.release(b, d);
    await one.release(c);
  });

  check("permits are counted, not holders", async (scene) => {
    const client = await scene.client();
    const [two, three, one] = [permit(2, 5), permit(3, 5), permit(1, 5)].map((terms) =>
      scene.claim("key", terms),
    ) as Three;
    await client.hold(two);
    await client.hold(three);
    await client.queue(one);
    await client.release(two);
    await client.granted(one);
    assert.ok(await client.isFree("key", permit(1, 5)));
    assert.ok(!(await client.isFree("key", permit(2, 5))));
    await client.release(three, one);
  });

  check("a semaphore and an exclusive claim exclude each other, also a semaphore of one", async (scene) => {
    const client = await scene.client();
    const only = scene.claim("key", permit(1, 1));
    await client.hold(only);
    assert.ok(!(await client.isFree("key", permit(1, 1))));
    assert.ok(!(await client.isFree("key")));
    await client.release(only);
    const all = scene.claim("key");
    await client.hold(all);
    assert.ok(!(await client.isFree("key", permit(1, 1))));
    assert.ok(!(await client.isFree("key", permit(1, ALL_PERMITS - 1))));
    await client.release(all);
  });

  check("limits that differ: each claim obeys its own", async (scene) => {
    const client = await scene.client();
    const wide = [permit(1, 5), permit(1, 5), permit(1, 5)].map((terms) => scene.claim("key", terms)) as Three;
    for (const claim of wide) await client.hold(claim);
    const narrow = scene.claim("key", permit(1, 2));
    await client.queue(narrow);
    await client.release(wide[0]);
    assert.equal((await client.ask(narrow)).state, "waiting", "two are in already, and its limit is two");
    await client.release(wide[1]);
    await client.granted(narrow);
    assert.ok(await client.isFree("key", permit(3, 5)));
    assert.ok(!(await client.isFree("key", permit(1, 2))));
    await client.release(wide[2], narrow);
  });

  check("one release lets in as many as fit", async (scene) => {
    const client = await scene.client();
    const big = scene.claim("key", permit(3, 3));
    const line = [permit(), permit(), permit(), permit()].map((terms) => scene.claim("key", terms)) as Four;
    await client.hold(big);
    for (const claim of line) await client.queue(claim);
    await client.release(big);
    for (const claim of line.slice(0, 3)) await client.granted(claim);
    assert.equal((await client.ask(line[3])).state, "waiting");
    await client.release(line[1]);
    await client.granted(line[3]);
    await client.release(...line);
  });

  if (!traits.fifo) return;

  check("a large claim at the front is not starved by small ones behind it", async (scene) => {
    const client = await scene.client();
    const [first, large, small] = [permit(), permit(3), permit()].map((terms) => scene.claim("key", terms)) as Three;
    await client.hold(first);
    await client.queue(large);
    await client.queue(small);
    assert.ok(!(await client.isFree("key", permit())), "who comes later does not overtake it without waiting either");
    await client.release(first);
    await client.granted(large);
    assert.equal((await client.ask(small)).state, "waiting");
    await client.release(large);
    await client.granted(small);
    await client.release(small);
  });
}

type Three = [Claim, Claim, Claim];
type Four = [Claim, Claim, Claim, Claim];

const permit = (count = 1, limit = 3): Terms => ({ permits: count, limit });

async function states(client: Client, ...claims: readonly Claim[]): Promise<string[]> {
  return (await client.driver.renew(claims)).map((answer) => answer?.state ?? "left out");
}
