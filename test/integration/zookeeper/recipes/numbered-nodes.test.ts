/**
 * The lock by ephemeral numbered nodes: the lowest is first, each watches the next lower. The article leaves open what is
 * tested here: a release from the middle of the queue, and its effect when the predecessor goes first.
 */

import { expect, test } from "vitest";
import { zookeeper } from "../../../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { zookeeperFixture } from "../../../support/stores/zookeeper-fixture.ts";

const TIMEOUT_MS = 20_000;
const KEY = "/locks/numbered";
const fixture = zookeeperFixture();

function openLocks(): Locks {
  const driver = zookeeper({ servers: [fixture.server.address], sessionMs: 20_000 });
  const locks = createLocks(driver, { ttl: "session", order: "strict" });
  fixture.clients.push(locks);
  return locks;
}

type Contender = { readonly locks: Locks; readonly wait: Promise<Lock>; readonly stop: AbortController };

/** Contenders in the order of the queue. */
async function queueContenders(count: number): Promise<Contender[]> {
  const contenders: Contender[] = [];
  for (let number = 0; number < count; number++) {
    const [locks, stop] = [openLocks(), new AbortController()];
    const wait = locks.acquire(KEY, { signal: stop.signal });
    wait.catch(() => undefined);
    contenders.push({ locks, wait, stop });
    await until(async () => ((await fixture.observer.exists(KEY))?.numChildren ?? 0) === number + 1, {
      within: TIMEOUT_MS,
      what: `place ${number}`,
    });
  }
  return contenders;
}

/** Is it granted after two more round trips? */
async function waitUntilHeld({ wait }: Contender): Promise<boolean> {
  let isHeld = false;
  wait.then(
    () => {
      isHeld = true;
    },
    () => undefined,
  );
  await fixture.observer.sync("/");
  await fixture.observer.sync("/");
  return isHeld;
}

test("the lowest number holds, and the next one after its release", async () => {
  const contenders = await queueContenders(4);
  const tokens: bigint[] = [];
  for (const [index, { wait }] of contenders.entries()) {
    const lock = await wait;
    for (const waiter of contenders.slice(index + 1)) expect(await waitUntilHeld(waiter)).toBe(false);
    tokens.push(lock.token);
    await lock.release();
  }
  expect(tokens).toEqual([...tokens].sort((one, other) => (one < other ? -1 : 1)));
});

test("a release from the middle of the queue grants nothing, and the next waiter waits for the one before", async () => {
  const [first, second, third] = (await queueContenders(3)) as [Contender, Contender, Contender];
  second.stop.abort(new Error("changed its mind"));
  await expect(second.wait).rejects.toThrow("changed its mind");
  await until(async () => (await fixture.observer.exists(KEY))?.numChildren === 2, {
    within: TIMEOUT_MS,
    what: "its node to go",
  });
  expect(await waitUntilHeld(third)).toBe(false);
  await (await first.wait).release();
  await (await third.wait).release();
});

test("a client that ends takes its nodes with it at once, held and waiting", async () => {
  const [first, second, third] = (await queueContenders(3)) as [Contender, Contender, Contender];
  await first.wait;
  await Promise.all([first.locks.close(), second.locks.close()]);
  await (await third.wait).release();
  expect((await fixture.observer.children(KEY)).names).toEqual([]);
});
