// A rule may bound how long a lock is held. Who has had it for so long is asked to go, and the next waits until it went.

import { expect, test } from "vitest";
import { createLocks } from "../../src/client/locks.ts";
import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import type { LockLostError } from "../../src/errors.ts";
import { leakCheck } from "../support/leak-check.ts";
import { until } from "../support/wait-for.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, held, later, running } from "./support.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const MINUTE = 60_000;
const ana = known("ana", "a/", ["acquire", "inspect"], { maxHoldMs: MINUTE });
const ben = known("ben");

async function world(): Promise<World> {
  const it = new World({ access: accessFor(ana, ben) });
  await it.start();
  return it;
}

test("what was held for too long answers none and why, is told so by itself, and keeps its place until it is released", async () => {
  const it = await world();
  const [holder, next] = [await it.client(true, ana.credential), await it.client(true, ben.credential)];
  const [a, b] = [claimOf("a/1"), claimOf("a/1", { ttlMs: MINUTE })];
  held(await holder.driver.claim(a));
  await next.driver.claim(b);
  const renewed = async (): Promise<void> => {
    await it.clock.pass(20_000);
    await holder.driver.renew([a]);
    await next.driver.renew([b]);
  };
  await renewed();
  await renewed();
  await it.clock.pass(19_999);
  expect(await holder.driver.renew([a])).toMatchObject([{ state: "held" }]);
  expect(holder.pushes).toEqual([]);
  await it.clock.pass(1);
  const outstayed = { state: "none", reason: "maxHold" };
  expect(holder.pushes).toEqual([{ id: a.id, answer: outstayed }]);
  expect(await holder.driver.renew([a])).toEqual([outstayed]);
  expect(await holder.driver.claim(a)).toEqual([outstayed][0]);
  // it may still be at work: nobody else is let in
  await it.clock.pass(20_000);
  expect(await next.driver.renew([b])).toMatchObject([{ state: "waiting" }]);
  await holder.driver.release([a]);
  await turns();
  expect(next.pushes).toMatchObject([{ id: b.id, answer: { state: "held" } }]);
});

test("a holder that never lets go keeps it until its lease ends, and not longer", async () => {
  const it = await world();
  const [holder, next] = [await it.client(true, ana.credential), await it.client(true, ben.credential)];
  const [a, b] = [claimOf("a/1"), claimOf("a/1", { ttlMs: MINUTE })];
  held(await holder.driver.claim(a));
  await next.driver.claim(b);
  for (let at = 0; at < 3; at++) {
    await it.clock.pass(19_000);
    await holder.driver.renew([a]);
    await next.driver.renew([b]);
  }
  // its last renewal was at 57 s, so its lease ends at 87 s
  await it.clock.pass(29_990);
  expect(next.pushes).toEqual([]);
  await it.clock.pass(20);
  expect(next.pushes).toMatchObject([{ id: b.id, answer: { state: "held" } }]);
});

test("the time counts from the grant, not from when the place was taken, and only where a rule says so", async () => {
  const it = await world();
  const [mine, other] = [await it.client(true, ana.credential), await it.client(true, ben.credential)];
  const [first, waited] = [claimOf("a/1", { ttlMs: 10 * MINUTE }), claimOf("a/1", { ttlMs: 10 * MINUTE })];
  held(await other.driver.claim(first));
  await mine.driver.claim(waited);
  await it.clock.pass(2 * MINUTE);
  // ben's rules bound nothing
  expect(await other.driver.renew([first])).toMatchObject([{ state: "held" }]);
  await other.driver.release([first]);
  await it.clock.pass(MINUTE - 1);
  expect(await mine.driver.renew([waited])).toMatchObject([{ state: "held" }]);
  await it.clock.pass(1);
  expect(await mine.driver.renew([waited])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("detaching does not escape it, and a restart carries on with what was left", async () => {
  const it = await world();
  const mine = await it.client(true, ana.credential);
  const claim = claimOf("a/1", { ttlMs: 10 * MINUTE });
  held(await mine.driver.claim(claim));
  await it.clock.pass(MINUTE / 2);
  expect(await mine.driver.detach?.([claim])).toEqual([true]);
  await it.stop();
  await it.start();
  const again = await it.client(true, ana.credential);
  await it.clock.pass(MINUTE / 2 - 1_000);
  expect(await again.driver.renew([claim])).toMatchObject([{ state: "held" }]);
  await it.clock.pass(1_000);
  expect(await again.driver.renew([claim])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("after a crash it counts from when the client told that it holds", async () => {
  const it = await world();
  const mine = await it.client(true, ana.credential);
  const claim = claimOf("a/1");
  held(await mine.driver.claim(claim));
  await it.clock.pass(9_000);
  await mine.driver.renew([claim]);
  it.crash();
  await it.start();
  await it.clock.pass(3_000);
  for (let at = 0; at < 3; at++) {
    expect(await mine.driver.renew([claim])).toMatchObject([{ state: "held" }]);
    await it.clock.pass(19_000);
  }
  expect(await mine.driver.renew([claim])).toMatchObject([{ state: "held" }]);
  await it.clock.pass(3_000);
  expect(await mine.driver.renew([claim])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("the holder's signal is aborted with the reason maxHold, long before its next renewal", async () => {
  const short = known("short", "", ["acquire"], { maxHoldMs: 200 });
  const it = await running({ access: accessFor(short) });
  const locks = createLocks(serverDriver({ path: it.path, credential: short.credential }));
  later(() => locks.close());
  const lock = await locks.acquire("k", { ttl: "30s" });
  await until(() => lock.signal.aborted, { within: 5_000, what: "the signal" });
  expect((lock.signal.reason as LockLostError).reason).toBe("maxHold");
  expect(await lock.release()).toBe(false);
  await until(() => it.stats().claims === 0, { within: 2_000, what: "the claim to be given back" });
});
