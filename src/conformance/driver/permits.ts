/** Readers, writers and semaphores: how many may hold one key together. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { ClaimOptions, DefineTest, DriverClient } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

const READER: ClaimOptions = { permits: 1 };

export function testPermits(test: DefineTest, settings: ConformanceSettings): void {
  if (settings.traits.permits === "one") return;
  testReadersAndWriters(test, settings);
  if (settings.traits.permits === "any") testSemaphores(test, settings);
}

function testReadersAndWriters(test: DefineTest, { traits }: ConformanceSettings): void {
  test("readers share; a writer excludes readers and writers", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [first, second, writer] = [
      context.createClaim("key", READER),
      context.createClaim("key", READER),
      context.createClaim("key"),
    ];
    await clientA.claimHeld(first);
    await clientB.claimHeld(second);
    assert.ok(!(await clientB.isFree("key")));
    await clientB.claimWaiting(writer);
    await clientA.release(first);
    assert.equal((await clientB.renew(writer)).state, "waiting");
    await clientB.release(second);
    await clientB.waitForGrant(writer);
    assert.ok(!(await clientA.isFree("key", READER)));
    assert.ok(!(await clientA.isFree("key")));
    await clientB.release(writer);
  });

  if (!traits.fifo) return;

  test("readers behind a waiting writer wait for it, then go in together", async (context) => {
    const client = await context.openClient();
    const [first, writer, second, third, last] = [
      context.createClaim("key", READER),
      context.createClaim("key"),
      context.createClaim("key", READER),
      context.createClaim("key", READER),
      context.createClaim("key"),
    ];
    await client.claimHeld(first);
    for (const claim of [writer, second, third, last]) await client.claimWaiting(claim);
    assert.ok(!(await client.isFree("key", READER)), "a waiting writer is not overtaken");
    await client.release(first);
    await client.waitForGrant(writer);
    assert.deepEqual(await states(client, second, third, last), ["waiting", "waiting", "waiting"]);
    await client.release(writer);
    await client.waitForGrant(second);
    await client.waitForGrant(third);
    assert.equal((await client.renew(last)).state, "waiting");
    await client.release(second, third);
    await client.waitForGrant(last);
    await client.release(last);
  });

  test("when a waiting writer leaves, the readers behind it go in", async (context) => {
    const client = await context.openClient();
    const [first, writer, second] = [
      context.createClaim("key", READER),
      context.createClaim("key"),
      context.createClaim("key", READER),
    ];
    await client.claimHeld(first);
    await client.claimWaiting(writer);
    await client.claimWaiting(second);
    await client.release(writer);
    await client.waitForGrant(second);
    assert.equal((await client.renew(first)).state, "held");
    await client.release(first, second);
  });
}

function testSemaphores(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a semaphore lets in as many as it has permits", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [a, b, c, d] = [permit(), permit(), permit(), permit()].map((options) =>
      context.createClaim("key", options),
    ) as FourSpecs;
    for (const [client, claim] of [
      [clientA, a],
      [clientB, b],
      [clientA, c],
    ] as const)
      await client.claimHeld(claim);
    await clientB.claimWaiting(d);
    assert.ok(!(await clientA.isFree("key", permit())));
    assert.equal((await clientA.claim(a)).state, "held", "a repeated claim takes no second permit");
    await clientA.release(a);
    await clientB.waitForGrant(d);
    await clientB.release(b, d);
    await clientA.release(c);
  });

  test("permits are counted, not holders", async (context) => {
    const client = await context.openClient();
    const [two, three, one] = [permit(2, 5), permit(3, 5), permit(1, 5)].map((options) =>
      context.createClaim("key", options),
    ) as ThreeSpecs;
    await client.claimHeld(two);
    await client.claimHeld(three);
    await client.claimWaiting(one);
    await client.release(two);
    await client.waitForGrant(one);
    assert.ok(await client.isFree("key", permit(1, 5)));
    assert.ok(!(await client.isFree("key", permit(2, 5))));
    await client.release(three, one);
  });

  test("a semaphore and an exclusive claim exclude each other, also a semaphore of one", async (context) => {
    const client = await context.openClient();
    const only = context.createClaim("key", permit(1, 1));
    await client.claimHeld(only);
    assert.ok(!(await client.isFree("key", permit(1, 1))));
    assert.ok(!(await client.isFree("key")));
    await client.release(only);
    const all = context.createClaim("key");
    await client.claimHeld(all);
    assert.ok(!(await client.isFree("key", permit(1, 1))));
    assert.ok(!(await client.isFree("key", permit(1, ALL_PERMITS - 1))));
    await client.release(all);
  });

  test("limits that differ: each claim obeys its own", async (context) => {
    const client = await context.openClient();
    const wide = [permit(1, 5), permit(1, 5), permit(1, 5)].map((options) =>
      context.createClaim("key", options),
    ) as ThreeSpecs;
    for (const claim of wide) await client.claimHeld(claim);
    const narrow = context.createClaim("key", permit(1, 2));
    await client.claimWaiting(narrow);
    await client.release(wide[0]);
    assert.equal((await client.renew(narrow)).state, "waiting", "two permits are held already, and its limit is two");
    await client.release(wide[1]);
    await client.waitForGrant(narrow);
    assert.ok(await client.isFree("key", permit(3, 5)));
    assert.ok(!(await client.isFree("key", permit(1, 2))));
    await client.release(wide[2], narrow);
  });

  test("one release lets in as many as fit", async (context) => {
    const client = await context.openClient();
    const big = context.createClaim("key", permit(3, 3));
    const queued = [permit(), permit(), permit(), permit()].map((options) =>
      context.createClaim("key", options),
    ) as FourSpecs;
    await client.claimHeld(big);
    for (const claim of queued) await client.claimWaiting(claim);
    await client.release(big);
    for (const claim of queued.slice(0, 3)) await client.waitForGrant(claim);
    assert.equal((await client.renew(queued[3])).state, "waiting");
    await client.release(queued[1]);
    await client.waitForGrant(queued[3]);
    await client.release(...queued);
  });

  if (!traits.fifo) return;

  test("a large claim at the front is not starved by small ones behind it", async (context) => {
    const client = await context.openClient();
    const [first, large, small] = [permit(), permit(3), permit()].map((options) =>
      context.createClaim("key", options),
    ) as ThreeSpecs;
    await client.claimHeld(first);
    await client.claimWaiting(large);
    await client.claimWaiting(small);
    assert.ok(!(await client.isFree("key", permit())), "a later claim that does not wait must not overtake it either");
    await client.release(first);
    await client.waitForGrant(large);
    assert.equal((await client.renew(small)).state, "waiting");
    await client.release(large);
    await client.waitForGrant(small);
    await client.release(small);
  });
}

type ThreeSpecs = [Claim, Claim, Claim];
type FourSpecs = [Claim, Claim, Claim, Claim];

const permit = (count = 1, limit = 3): ClaimOptions => ({ permits: count, limit });

async function states(client: DriverClient, ...claims: readonly Claim[]): Promise<string[]> {
  return (await client.driver.renew(claims)).map((answer) => answer?.state ?? "left out");
}
