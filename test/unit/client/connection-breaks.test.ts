/** What a client grants between a break of its connection and the store's next answer. */

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Lock, Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver, DriverEvents, Traits } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { FakeClock } from "../../support/fake-clock.ts";

interface Fixture {
  readonly locks: Locks;
  readonly events: DriverEvents;
  /** "claim a", "renew a b", in the order in which they were sent. */
  readonly calls: string[];
  /** Lets the messages of this moment arrive. */
  settle(): Promise<void>;
  /** From now on the connection breaks after each renewal was sent, before its answer arrives. */
  breakAfterRenewal(): void;
}

async function createFixture(options: LocksOptions = {}, traits: Partial<Traits> = {}): Promise<Fixture> {
  const clock = new FakeClock();
  const inner = memory({ store: memoryStore(clock) });
  const calls: string[] = [];
  let events: DriverEvents | undefined;
  let onRenew = (): void => undefined;
  const record = (verb: string, claims: Parameters<Driver["renew"]>[0]): void => {
    calls.push(`${verb} ${claims.map(({ locks: [{ key }] }) => key).join(" ")}`);
  };
  const driver = delegate(inner, {
    open: async (driverEvents) => {
      events = driverEvents;
      return { ...(await inner.open(driverEvents)), ...traits };
    },
    claim(claim) {
      record("claim", [claim]);
      return inner.claim(claim);
    },
    renew(claims, tokenCounts) {
      record("renew", claims);
      onRenew();
      return inner.renew(claims, tokenCounts);
    },
    release(releases) {
      record(
        "release",
        releases.map(({ claim }) => claim),
      );
      return inner.release(releases);
    },
  });
  const locks = createLocks(driver, { clock, ...options });
  await locks.using("first use", { cache: 0 }, () => undefined);
  calls.length = 0;
  return {
    locks,
    events: events as DriverEvents,
    calls,
    settle: () => clock.advance(0),
    breakAfterRenewal() {
      onRenew = () => events?.disconnected();
    },
  };
}

async function use(locks: Locks, key = "a"): Promise<void> {
  await (await locks.acquire(key)).release();
}

test("an idle lock is released, and the request makes a claim of its own", async () => {
  const { locks, events, calls } = await createFixture({ cache: "10s" });
  await use(locks);
  events.disconnected();
  await use(locks);
  expect(calls).toEqual(["claim a", "release a", "claim a"]);
  await use(locks);
  expect(calls, "the store has answered since").toHaveLength(3);
  await locks.close();
});

test("an idle lock is used again once a renewal that was sent after the break is answered", async () => {
  const { locks, events, calls, settle } = await createFixture({ cache: "10s" });
  await use(locks);
  events.disconnected();
  events.reconnected();
  await settle();
  await use(locks);
  expect(calls).toEqual(["claim a", "renew a"]);
  await locks.close();
});

test("the answer to a renewal that was sent before the break does not count", async () => {
  const { locks, events, calls, settle, breakAfterRenewal } = await createFixture({ cache: "10s" });
  await use(locks);
  breakAfterRenewal();
  events.reconnected();
  await settle();
  expect(calls).toEqual(["claim a", "renew a"]);
  await use(locks);
  expect(calls).toEqual(["claim a", "renew a", "release a", "claim a"]);
  await locks.close();
});

test("a lock in use when the connection breaks is not kept when it is released", async () => {
  const { locks, events, calls } = await createFixture({ cache: "10s" });
  const lock = await locks.acquire("a");
  events.disconnected();
  lock.throwIfLost();
  await lock.release();
  expect(calls).toEqual(["claim a", "release a"]);
  await locks.close();
});

test("the next local request waits for the answer to its own claim: one call more for each break", async () => {
  const { locks, events, calls, settle } = await createFixture();
  const grants: string[] = [];
  const requests = ["1", "2", "3", "4", "5"].map(async (name): Promise<[string, Lock]> => {
    const lock = await locks.acquire("a", { wait: "10s" });
    grants.push(name);
    return [name, lock];
  });
  const release = async (index: number): Promise<void> => {
    const [, lock] = await (requests[index] as Promise<[string, Lock]>);
    void lock.release();
  };
  await release(0);
  await release(1);
  await (requests[2] as Promise<unknown>);
  expect(calls, "handed on from the second to the third request").toEqual(["claim a", "release a", "claim a"]);
  events.disconnected();
  await release(2);
  expect(grants).toEqual(["1", "2", "3"]);
  await settle();
  await release(3);
  await release(4);
  await settle();
  expect(grants).toEqual(["1", "2", "3", "4", "5"]);
  expect(calls.slice(3), "after the break one claim, handed on again").toEqual(["release a", "claim a", "release a"]);
  await locks.close();
});

test("of several keys that are acquired one by one, each must be confirmed after the break", async () => {
  const { locks, events, calls, settle } = await createFixture({}, { manyKeys: false });
  const other = await locks.acquire("b");
  const both = locks.all("a", "b").acquire({ wait: "10s" });
  await settle();
  events.disconnected();
  await other.release();
  const lock = await both;
  // the client has held "a" throughout, but the store has not said so since
  expect(calls.filter((call) => call === "claim a")).toHaveLength(2);
  lock.throwIfLost();
  await lock.release();
  await locks.close();
});

test("a client that does not report breaks hands nothing on, and caches nothing", async () => {
  const { locks, calls } = await createFixture({}, { reportsBreaks: false });
  await expect(locks.acquire("a", { cache: "10s" })).rejects.toThrow(/does not report when its connection breaks/);
  const requests = [1, 2, 3].map(() => locks.acquire("a", { wait: "10s" }));
  for (const request of requests) void (await request).release();
  await locks.close();
  expect(calls.filter((call) => call === "claim a")).toHaveLength(3);
});
