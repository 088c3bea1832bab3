import { afterEach, assert, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { ObserveOptions } from "../../../src/leader/election.ts";
import type { Leader } from "../../../src/leader/leader.ts";
import "../../../src/leader/leader.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { sleep } from "../../../src/util/timeout.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

interface Fixture {
  readonly clock: FakeClock;
  readonly candidate: Locks;
  readonly observer: Locks;
  /** How often the observer has asked the store. */
  reads(): number;
}

const opened: Locks[] = [];
let failure: Error | null = null;

afterEach(async () => {
  failure = null;
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
});

function createFixture(change: (driver: Driver) => Partial<Driver> = () => ({})): Fixture {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  let reads = 0;
  const driver = memory({ store });
  const counted: Driver = {
    ...driver,
    list: (query, options) => {
      reads++;
      return failure === null ? driver.list(query, options) : Promise.reject(failure);
    },
    ...change(driver),
  };
  const candidate = createLocks(memory({ store }), { clock, ttl: "10s", label: "candidate" });
  const observer = createLocks(counted, { clock, prefix: "" });
  opened.push(candidate, observer);
  return { clock, candidate, observer, reads: () => reads };
}

interface Watch {
  readonly seen: (Leader | null)[];
  readonly ended: Promise<void>;
}

function watch(locks: Locks, options?: ObserveOptions): Watch {
  const seen: (Leader | null)[] = [];
  const run = async (): Promise<void> => {
    for await (const leader of locks.leader("scheduler").observe(options)) seen.push(leader);
  };
  const ended = run();
  ended.catch(() => undefined);
  return { seen, ended };
}

test("current() is the leader with its label and token, or null; the next waiter is none", async () => {
  const { candidate, observer } = createFixture();
  expect(await observer.leader("scheduler").current()).toBeNull();
  const election = candidate.leader("scheduler", { label: "10.0.0.7:8080" });
  for await (const term of election) {
    const waiting = observer.leader("scheduler");
    const next = waiting[Symbol.asyncIterator]().next();
    await flushEventLoop();
    expect(await observer.leader("scheduler").current()).toEqual({ label: "10.0.0.7:8080", token: term.token });
    expect(await election.current()).toEqual({ label: "10.0.0.7:8080", token: term.token });
    await waiting.close();
    await next;
    break;
  }
  expect(await observer.leader("scheduler").current()).toBeNull();
});

test("a reader or a holder of permits on the key is no leader, and the candidate behind it is none yet", async () => {
  const { candidate, observer } = createFixture();
  for (const lockable of [candidate.rw("scheduler").read, candidate.semaphore("scheduler", 2)]) {
    const lock = await lockable.acquire();
    const election = candidate.leader("scheduler");
    const next = election[Symbol.asyncIterator]().next();
    await flushEventLoop();
    expect((await observer.list()).map(({ state }) => state)).toEqual(["held", "waiting"]);
    expect(await observer.leader("scheduler").current()).toBeNull();
    await election.close();
    await next;
    await lock.release();
  }
});

test("observe() yields the leader now, then each other one, and null while there is none; it asks once per interval", async () => {
  const { clock, candidate, observer, reads } = createFixture();
  const { seen, ended } = watch(observer, { interval: "2s" });
  await clock.advance(1);
  expect([seen, reads()]).toEqual([[null], 1]);
  for await (const term of candidate.leader("scheduler")) {
    await clock.advance(1_990);
    expect([seen, reads()]).toEqual([[null], 1]);
    await clock.advance(6_000);
    expect([seen, reads()]).toEqual([[null, { label: "candidate", token: term.token }], 4]);
    break;
  }
  await clock.advance(2_000);
  expect([seen.length, seen[2], reads()]).toEqual([3, null, 5]);
  for (let count = 0; count < 2; count++) {
    const lock = await candidate.acquire("scheduler", { label: "the same" });
    await clock.advance(2_000);
    await lock.release();
  }
  const [last, beforeLast] = [seen[4], seen[3]] as [Leader, Leader];
  expect([seen.length, beforeLast.label, last.label]).toEqual([5, "the same", "the same"]);
  expect(last.token).toBeGreaterThan(beforeLast.token);
  await observer.close();
  await ended;
});

test("a slow body delays the next read, which then shows the leader of that moment", async () => {
  const { clock, candidate, observer, reads } = createFixture();
  const iterator = observer.leader("scheduler").observe();
  expect(await iterator.next()).toEqual({ done: false, value: null });
  await clock.advance(60_000);
  expect(reads()).toBe(1);
  for await (const term of candidate.leader("scheduler")) {
    const next = iterator.next();
    await clock.advance(1);
    expect(await next).toEqual({ done: false, value: { label: "candidate", token: term.token } });
    break;
  }
  await iterator.return();
});

test("a store that fails delays the loop, a refusal rejects it; current() rejects with either", async () => {
  const { clock, observer, reads } = createFixture();
  const watched = watch(observer);
  await clock.advance(1);
  failure = new Error("cut");
  await clock.advance(5_000);
  expect([watched.seen, reads()]).toEqual([[null], 6]);
  const election = observer.leader("scheduler");
  await expect(election.current()).rejects.toMatchObject({
    code: "LOCK_STORE_FAILED",
    message: 'could not read who leads "scheduler": cut',
    keys: ["scheduler"],
  });
  failure = Object.assign(new Error("not allowed"), { code: "LOCK_STORE_REFUSED" });
  await clock.advance(1_000);
  await expect(watched.ended).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  await clock.advance(1_000);
  await expect(election.current()).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED", message: "not allowed" });
});

test("the signal, close() and the end of the client end a loop without an error, also while it waits", async () => {
  const { clock, observer } = createFixture();
  const [controller, electionController] = [new AbortController(), new AbortController()];
  const bySignal = watch(observer, { signal: controller.signal });
  const election = observer.leader("scheduler", { signal: electionController.signal });
  const byElection = election.observe()[Symbol.asyncIterator]();
  const byClient = watch(observer);
  await clock.advance(1);
  expect(await byElection.next()).toEqual({ done: false, value: null });
  const pending = byElection.next();
  controller.abort();
  await bySignal.ended;
  electionController.abort();
  expect(await pending).toEqual({ done: true, value: undefined });
  await observer.close();
  await byClient.ended;
  for await (const _leader of election.observe()) assert.fail("it has ended");
  await expect(watch(observer).ended).rejects.toMatchObject({ code: "LOCK_CLOSED" });
});

test("a store that lists only its own claims cannot show the leader", async () => {
  const { observer } = createFixture((driver) => ({
    open: async (events) => ({ ...(await driver.open(events)), list: "own" as const }),
  }));
  const error = { code: "LOCK_UNSUPPORTED", keys: ["scheduler"] };
  await expect(observer.leader("scheduler").current()).rejects.toMatchObject(error);
  await expect(watch(observer).ended).rejects.toMatchObject(error);
});

test("a wrong option is a TypeError that names it", () => {
  const election = createFixture().observer.leader("scheduler");
  const observe = (options: unknown) => (): unknown => election.observe(options as ObserveOptions);
  expect(observe({ every: "1s" })).toThrow(/^observe has no option "every"/);
  expect(observe({ interval: 1 })).toThrow(/^interval must be a whole number of milliseconds from 10/);
  expect(observe({ signal: "x" })).toThrow(/^signal must be an AbortSignal/);
});

test("current() shows a change that came before the call, also while an earlier lookup is answered slowly", async () => {
  const fixture = createFixture((driver) => ({
    list: async (query, options) => {
      const page = await driver.list(query, options);
      await sleep(fixture.clock, 200);
      return page;
    },
  }));
  const { clock, candidate, observer } = fixture;
  const election = observer.leader("scheduler");
  const before = election.current();
  await clock.advance(100);
  const lock = await candidate.acquire("scheduler");
  const during = election.current();
  await clock.advance(200);
  await lock.release();
  const after = election.current();
  await clock.advance(200);
  expect([await before, (await during)?.token, await after]).toEqual([null, lock.token, null]);
});
