// What operations cost, and what they leave, over a store in memory.

import { setTimeout as delay } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { createLocks } from "../../../../src/client/locks.ts";
import { createDocumentDriver } from "../../../../src/drivers/document/driver.ts";
import { decodeDocument } from "../../../../src/drivers/document/format.ts";
import type { DocumentDriverOptions } from "../../../../src/drivers/document/index.ts";
import type { Answer, Claim, Driver } from "../../../../src/spi/driver.ts";
import { makeClaim } from "../../../support/claims.ts";
import { NO_EVENTS, toDriverEvents } from "../../../support/driver-events.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import type { CallFault } from "../../../support/stores/memory-documents.ts";
import { MemoryDocuments } from "../../../support/stores/memory-documents.ts";

const drivers: Driver[] = [];

afterEach(async () => {
  for (const driver of drivers.splice(0)) await driver.close();
});

function createDriver(store: MemoryDocuments, options: DocumentDriverOptions = {}, canWatch = false): Driver {
  const driver = createDocumentDriver(store.client({ canWatch }), { documents: 1, pollMs: 5, ...options }, 100);
  drivers.push(driver);
  return driver;
}

async function openDriver(
  store: MemoryDocuments,
  options: DocumentDriverOptions = {},
  onPush?: (id: string | null, answer?: Answer) => unknown,
  canWatch = false,
): Promise<Driver> {
  const driver = createDriver(store, options, canWatch);
  await driver.open(onPush === undefined ? NO_EVENTS : toDriverEvents(onPush));
  return driver;
}

const release = (driver: Driver, ...claims: Claim[]): Promise<readonly boolean[]> =>
  driver.release(claims.map((claim) => ({ claim, hasUnansweredClaim: false })));

const renew = async (driver: Driver, claim: Claim): Promise<Answer | undefined> => (await driver.renew([claim]))[0];

const documentIn = (store: MemoryDocuments) => {
  const document = decodeDocument(store.documents.get("locks-0")?.bytes as Uint8Array, "locks-0");
  return { ...document, ids: document.queues.flatMap(([, entries]) => entries.map(([id]) => id)) };
};

/** Counts the calls of the work. */
async function countCalls(
  store: MemoryDocuments,
  work: () => Promise<unknown>,
): Promise<{ reads: number; writes: number }> {
  const { reads, writes } = store;
  await work();
  return { reads: store.reads - reads, writes: store.writes - writes };
}

/** The fault happens once, at the next call of this kind. */
function failNext(store: MemoryDocuments, kind: "read" | "write", fault: CallFault): void {
  store.onCall = (call) => {
    if (call !== kind) return undefined;
    store.onCall = () => undefined;
    return fault;
  };
}

test("a lock of a process that is alone costs two writes and no read", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  await release(driver, await claimHeld(driver));
  const cost = await countCalls(store, async () => release(driver, await claimHeld(driver)));
  expect(cost).toEqual({ reads: 0, writes: 2 });
});

test("a claim that waits and asks often is written once in a third of its lease, and read else", async () => {
  const store = new MemoryDocuments();
  const [holder, waiter] = [await openDriver(store), await openDriver(store)];
  await claimHeld(holder);
  const claim = makeClaim("key", { ttlMs: 3_000 });
  await waiter.claim(claim);
  const startedAt = performance.now();
  let asked = 0;
  const cost = await countCalls(store, async () => {
    while (performance.now() - startedAt < 1_500) {
      expect((await renew(waiter, claim))?.state).toBe("waiting");
      asked++;
      await delay(20);
    }
  });
  expect(asked).toBeGreaterThan(10);
  expect(cost.writes).toBe(1);
  expect(cost.reads).toBeGreaterThan(10);
});

async function claimHeld(driver: Driver, key = "key"): Promise<Claim> {
  const claim = makeClaim(key);
  expect((await driver.claim(claim)).state).toBe("held");
  return claim;
}

test("the claims, renewals and releases of one turn are one write", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  const held = await Promise.all(Array.from({ length: 100 }, (_, index) => claimHeld(driver, `held ${index}`)));
  const claims = Array.from({ length: 100 }, (_, index) => makeClaim(`key ${index}`));
  const cost = await countCalls(store, () =>
    Promise.all([...claims.map((claim) => driver.claim(claim)), release(driver, ...held)]),
  );
  expect(cost).toEqual({ reads: 0, writes: 1 });
  expect(await driver.renew(claims)).toHaveLength(100);
});

test("64 callers of one process that wait for one key cost one write a turn, in strict order, too", async () => {
  for (const order of ["process", "strict"] as const) {
    const store = new MemoryDocuments();
    const locks = createLocks(createDriver(store), { order });
    let turns = 0;
    await locks.using("key", async () => undefined);
    const { writes, reads } = await countCalls(store, () =>
      Promise.all(Array.from({ length: 64 }, () => locks.using("key", async () => void turns++))),
    );
    expect(turns).toBe(64);
    expect(writes).toBeLessThanOrEqual(64 + 3);
    expect(reads).toBeLessThanOrEqual(64);
    await locks.close();
  }
});

test("renewals of claims with most of their lease left are reads, however many ask", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  const [held, waiting] = [await claimHeld(driver), makeClaim("key")];
  await driver.claim(waiting);
  const cost = await countCalls(store, () =>
    Promise.all(Array.from({ length: 20 }, () => driver.renew([held, waiting]))),
  );
  expect(cost.writes).toBe(0);
  expect(cost.reads).toBeLessThanOrEqual(2);
});

test("an answer is from a read or a write that was sent after its call", async () => {
  const store = new MemoryDocuments();
  const [driver, other] = [await openDriver(store), await openDriver(store)];
  const held = await claimHeld(driver);
  const waiting = makeClaim("key");
  expect((await other.claim(waiting)).state).toBe("waiting");
  await release(driver, held);
  expect((await renew(other, waiting))?.state).toBe("held");
  await release(other, waiting);
  expect((await driver.claim(makeClaim("key", { wait: false }))).state).toBe("held");
});

test("a refused claim that does not wait, and a list, write nothing", async () => {
  const store = new MemoryDocuments();
  const [driver, other] = [await openDriver(store), await openDriver(store)];
  await claimHeld(driver);
  const cost = await countCalls(store, async () => {
    expect(await other.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
    expect((await other.list({ key: "key" }, { max: 5 })).items).toHaveLength(1);
  });
  expect(cost.writes).toBe(0);
});

test.each([false, true])("of 8 processes on one key none starves (watched: %s)", async (canWatch) => {
  const store = new MemoryDocuments();
  store.pass = () => delay(1);
  const maxRounds = 200;
  const clients = Array.from({ length: 8 }, () => createLocks(createDriver(store, { pollMs: 5 }, canWatch)));
  for (const locks of clients) await locks.using("key", async () => undefined);
  const turns = clients.map(() => 0);
  const mayStop = (): boolean => turns.every((count) => count >= 3) || Math.max(...turns) >= maxRounds;
  // the last one knows the document from its own write, and goes first
  await Promise.all(
    clients.reverse().map(async (locks, index) => {
      for (; !mayStop(); )
        await locks.using("key", async () => {
          turns[index] = (turns[index] ?? 0) + 1;
        });
    }),
  );
  expect(Math.max(...turns), `turns: ${turns}`).toBeLessThan(maxRounds);
  for (const locks of clients) await locks.close();
});

test.each([false, true])(
  "many processes that claim keys of one document at once all succeed (watched: %s)",
  async (canWatch) => {
    const store = new MemoryDocuments();
    const clients = await Promise.all(Array.from({ length: 8 }, () => openDriver(store, {}, undefined, canWatch)));
    const counts = await Promise.all(
      clients.map(async (driver, index) => {
        for (let round = 0; round < 20; round++) await release(driver, await claimHeld(driver, `${index}`));
        return 20;
      }),
    );
    expect(counts).toHaveLength(8);
    expect(store.conflicts).toBeGreaterThan(0);
  },
);

test("tokens rise across idle keys, and an idle key leaves nothing", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, { tokenBase: 1_000n });
  let last = 1_000n;
  for (let index = 0; index < 50; index++) {
    const claim = makeClaim(`key ${index % 7}`, { tokenCount: 1 + (index % 3) });
    const answer = await driver.claim(claim);
    if (answer.state !== "held") throw new Error("it is free");
    expect(answer.token).toBe(last + 1n);
    last += BigInt(answer.tokenCount);
    await release(driver, claim);
  }
  const { ids, tombstones, lastToken } = documentIn(store);
  expect([ids.length, tombstones.length, BigInt(lastToken) + 1_000n]).toEqual([0, 0, last]);
  expect(store.documents.get("locks-0")?.bytes.length).toBeLessThan(450);
});

test("a claim for which the document has no room is refused, and everything else goes on", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  const claims = Array.from({ length: 2_500 }, (_, index) => makeClaim("key", { label: `waiter ${index}` }));
  const results = await Promise.allSettled(claims.map((claim) => driver.claim(claim)));
  const errors = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
  const placed = claims.filter((_, index) => results[index]?.status === "fulfilled");
  expect(placed.length).toBeGreaterThan(1_000);
  expect(errors.length).toBeGreaterThan(0);
  for (const error of errors) expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED", keys: ["key"] });
  expect(errors[0].message).toBe(
    `memory-documents: the document locks-0 is full: ${placed.length} claims hold or wait for its keys`,
  );
  const [first, second] = placed as [Claim, Claim];
  expect((await driver.renew(placed)).map((answer) => answer?.state)).toEqual([
    "held",
    ...placed.slice(1).map(() => "waiting"),
  ]);
  await driver.release([{ claim: first, hasUnansweredClaim: true }]);
  expect((await renew(driver, second))?.state).toBe("held");
  expect(documentIn(store).ids.length).toBe(placed.length - 1);
  expect(store.documents.get("locks-0")?.bytes.length).toBeLessThan(256 * 1_024);
  expect((await driver.claim(makeClaim("other", { label: "one more" }))).state).toBe("held");
});

test("a write whose answer was lost is found by its mark, also when others have written since", async () => {
  const store = new MemoryDocuments();
  const [driver, other] = [await openDriver(store), await openDriver(store)];
  const claim = makeClaim("key");
  failNext(store, "write", "lostReply");
  const answer = await driver.claim(claim);
  expect(answer).toMatchObject({ state: "held", token: 1n });
  expect(documentIn(store).writeNumber).toBe(1);
  // the other process writes before this one reads
  let othersDone: Promise<unknown> = Promise.resolve();
  store.onCall = (call) => {
    if (call !== "write") return undefined;
    store.onCall = () => undefined;
    othersDone = Promise.all(["a", "b", "c"].map((key) => claimHeld(other, key)));
    return "lostReply";
  };
  // the answer is true: it existed, and its own write has removed it
  expect(await release(driver, claim)).toEqual([true]);
  await othersDone;
  expect(documentIn(store).ids.length).toBe(3);
});

test("a write that did not arrive is made again, and one of two can happen", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  failNext(store, "write", "lostCall");
  const claim = await claimHeld(driver);
  failNext(store, "write", "conflict");
  expect(await release(driver, claim)).toEqual([true]);
  expect(documentIn(store).writeNumber).toBe(2);
});

test("a write that comes late, after its process gave it up, changes nothing any more", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const driver = await openDriver(store, { clock, callTimeoutMs: 500 });
  const held = await claimHeld(driver);
  let arrive: () => void = () => undefined;
  const { pass } = store;
  store.pass = () =>
    new Promise<void>((resolve) => {
      arrive = resolve;
      store.pass = pass;
    });
  const claiming = driver.claim(makeClaim("other"));
  await clock.advance(600); // timed out, and made again
  const { writeNumber } = documentIn(store);
  expect((await claiming).state).toBe("held");
  await release(driver, held);
  arrive();
  await clock.advance(10);
  expect(documentIn(store).ids.length).toBe(1);
  expect(documentIn(store).writeNumber).toBe(writeNumber + 1);
});

test("an error of the store fails the call, and the next one succeeds", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  store.onCall = () => "lostCall";
  await expect(driver.claim(makeClaim("key"))).rejects.toThrow("lost");
  store.onCall = () => undefined;
  expect((await driver.claim(makeClaim("key"))).state).toBe("held");
});

test("conflicts without an end fail the call after a bound", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  store.onCall = (call) => (call === "write" ? "conflict" : undefined);
  await expect(driver.claim(makeClaim("key"))).rejects.toThrow("other processes wrote it first, 60 times");
});

test("a read that is older than an earlier one is no answer: it fails, and the lock is not lost", async () => {
  const store = new MemoryDocuments();
  const [driver, other] = [await openDriver(store), await openDriver(store)];
  const claim = await claimHeld(driver);
  await claimHeld(other, "other");
  await other.claim(makeClaim("key"));
  expect((await renew(driver, claim))?.state).toBe("held");
  store.onCall = (call) => (call === "read" ? "stale" : undefined);
  await expect(driver.renew([claim])).rejects.toThrow("it was read in an older state than before");
  store.onCall = () => undefined;
  expect((await renew(driver, claim))?.state).toBe("held");
});

test("a detached lock ends although nothing waits for it, when any process has watched its document for a lease", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const [holder, other] = [await openDriver(store, { clock }), await openDriver(store, { clock })];
  const claim = makeClaim("detached", { ttlMs: 10_000 });
  await holder.claim(claim);
  expect(await holder.detach?.([claim])).toEqual([true]);
  await holder.close();
  const own = makeClaim("of another key", { ttlMs: 60_000 });
  await other.claim(own);
  await clock.advance(10_000);
  await renew(other, own);
  expect(documentIn(store).ids.length, "1 % more than the lease has not passed").toBe(2);
  await clock.advance(150);
  await renew(other, own);
  expect(documentIn(store).ids).toEqual([own.id]);
  expect(await renew(other, claim)).toEqual({ state: "none", reason: "expired" });
});

test("a newcomer waits a whole lease behind a dead holder, and no longer", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const dead = await openDriver(store, { clock });
  await dead.claim(makeClaim("key", { ttlMs: 10_000 }));
  await clock.advance(60_000);
  const newcomer = await openDriver(store, { clock });
  const claim = makeClaim("key", { ttlMs: 60_000 });
  expect((await newcomer.claim(claim)).state).toBe("waiting");
  await clock.advance(10_050);
  expect((await renew(newcomer, claim))?.state).toBe("waiting");
  await clock.advance(100);
  expect((await renew(newcomer, claim))?.state).toBe("held");
});

test("while a process sees renewals it ends nothing, whatever its clock shows", async () => {
  const store = new MemoryDocuments();
  const [slow, fast] = [new FakeClock(), new FakeClock(5_000_000)];
  const [holder, waiter] = [await openDriver(store, { clock: slow }), await openDriver(store, { clock: fast })];
  const [held, waiting] = [makeClaim("key", { ttlMs: 10_000 }), makeClaim("key", { ttlMs: 60_000 })];
  await holder.claim(held);
  await waiter.claim(waiting);
  for (let round = 0; round < 20; round++) {
    await slow.advance(3_000);
    await fast.advance(3_000);
    fast.wallOffsetMs += 3_600_000;
    expect((await renew(holder, held))?.state).toBe("held");
    expect((await renew(waiter, waiting))?.state).toBe("waiting");
  }
});

test("an id that returns has a new stopwatch", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const [holder, waiter] = [await openDriver(store, { clock }), await openDriver(store, { clock })];
  const [held, waiting] = [makeClaim("key", { ttlMs: 10_000 }), makeClaim("key", { ttlMs: 60_000 })];
  await holder.claim(held);
  await waiter.claim(waiting);
  await clock.advance(9_000);
  await release(waiter, waiting);
  await release(holder, held);
  await holder.claim(held);
  await clock.advance(2_000);
  await waiter.claim(waiting);
  expect((await renew(holder, held))?.state).toBe("held");
});

test("a renewal that only reads does not count time for which the machine was suspended", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const driver = await openDriver(store, { clock });
  const claim = makeClaim("key", { ttlMs: 100_000 });
  await driver.claim(claim);
  await clock.advance(1_000);
  clock.suspend(5_000);
  await clock.advance(1_000);
  const answer = await renew(driver, claim);
  expect(answer?.state === "held" && answer.remainingMs).toBe(93_000);
});

test("a lease counts from when the write was sent that renewed it, however late its answer came", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const driver = await openDriver(store, { clock });
  const claim = makeClaim("key", { ttlMs: 10_000 });
  store.pass = () => new Promise((resolve) => clock.timer(() => resolve(undefined)).set(clock.now() + 400));
  const claiming = driver.claim(claim);
  await clock.advance(1_600); // a read and a write, there and back
  expect(await claiming).toMatchObject({ state: "held", remainingMs: 10_000 });
  store.pass = async () => undefined;
  expect(await renew(driver, claim)).toMatchObject({ state: "held", remainingMs: 9_200 });
});

test("a tombstone answers a late claim, and goes with a later write", async () => {
  const store = new MemoryDocuments();
  const clock = new FakeClock();
  const [driver, other] = [await openDriver(store, { clock }), await openDriver(store, { clock })];
  const claim = makeClaim("key", { ttlMs: 10_000 });
  await driver.release([{ claim, hasUnansweredClaim: true }]);
  for (const one of [driver, other]) expect(await one.claim(claim)).toEqual({ state: "none", reason: "released" });
  await clock.advance(10_200);
  await claimHeld(driver, "other");
  expect(documentIn(store).tombstones.length).toBe(0);
});

test("tombstones are bounded", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store);
  const releases = Array.from({ length: 1_000 }, () => ({ claim: makeClaim("key"), hasUnansweredClaim: true }));
  await driver.release(releases);
  expect(documentIn(store).tombstones.length).toBe(500);
  expect(documentIn(store).tombstones.at(-1)?.[0] === releases.at(-1)?.claim.id).toBe(true);
});

test("a grant that another process makes is pushed, if the store can tell of changes", async () => {
  const store = new MemoryDocuments();
  const pushes: (Answer | undefined)[] = [];
  const holder = await openDriver(store);
  const waiter = await openDriver(store, { pollMs: 60_000 }, (_, answer) => pushes.push(answer), true);
  const held = await claimHeld(holder);
  await waiter.claim(makeClaim("key"));
  const { reads } = store;
  await release(holder, held);
  await expect.poll(() => pushes.length).toBe(1);
  expect(pushes[0]).toMatchObject({ state: "held", token: 2n });
  expect(store.reads - reads).toBeLessThanOrEqual(3);
  await waiter.close();
  expect(store.watcherCount).toBe(0);
});

test("a lock that costs nothing to watch is not watched", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, {}, undefined, true);
  await claimHeld(driver);
  expect(store.watcherCount).toBe(0);
});

test("a failing document delays no other one", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, { documents: 4 });
  const claims = Array.from({ length: 20 }, (_, index) => makeClaim(`key ${index}`));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  expect(new Set(claims.map((claim) => driver.shardOf?.(claim))).size).toBe(4);
  store.onCall = (_, name) => (name === "locks-2" ? "lostCall" : undefined);
  for (const claim of claims) {
    const renewal = driver.renew([claim]);
    if (driver.shardOf?.(claim) === "locks-2") await expect(renewal).rejects.toThrow("lost");
    else expect(await renewal).toMatchObject([{ state: "held" }]);
  }
  store.onCall = () => undefined;
});

test("the checks of doctor name the documents", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, { documents: 2 });
  await claimHeld(driver);
  expect(await driver.diagnose?.()).toEqual([
    { status: "ok", name: "documents", message: "2 documents, with at most 1 claims each" },
    { status: "ok", name: "leases", message: "a process that has just started waits a whole ttl behind a dead holder" },
  ]);
});
