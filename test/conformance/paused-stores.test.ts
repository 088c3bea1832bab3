// Stores that are paused because the stores behind them are: a proxy, and a majority.

import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Locks } from "../../src/client/locks.ts";
import { createLocks } from "../../src/client/locks.ts";
import type { Runner, TestStore } from "../../src/conformance/suite.ts";
import { conformance } from "../../src/conformance/suite.ts";
import { memory } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { Tally } from "../../src/drivers/quorum/tally.ts";
import { lockServer } from "../../src/drivers/server/driver.ts";
import type { Answer, Claim, Driver } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { until } from "../../src/testing/until.ts";
import type { TcpProxy } from "../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../src/torture/tcp-proxy.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { toReleases } from "../support/releases.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../support/server-fixture.ts";
import { createServerStore } from "../support/stores/server-store.ts";

cleanUpAfterEach();

/** Only the tests of stores that pause. */
function pauseTopicRunner(): Runner {
  let depth = 0;
  return {
    describe(name, body) {
      if (depth === 1 && name !== "pauses") return;
      describe(name, () => {
        depth++;
        body();
        depth--;
      });
    },
    test: leakCheckedTest(test),
  };
}

const neverSettles = async (): Promise<TestStore> => {
  throw new Error("only the tests of pauses are run");
};
const pausedDriver = () => createServerStore((folder) => `holdfast+unix:${join(folder, "socket")}`, true);

conformance(pauseTopicRunner(), "a majority of servers that recover", {
  open: neverSettles,
  openPaused: async () => {
    const members = await Promise.all([pausedDriver(), pausedDriver(), pausedDriver()]);
    return {
      driver: async () => quorum(await Promise.all(members.map(async (member) => member.driver()))),
      close: async () => void (await Promise.all(members.map(async (member) => member.close?.()))),
    };
  },
  traits: { manyKeys: false, permits: "shared", fifo: false, recall: "push" },
  timeScale: 0.5,
});

describe("a majority of three", () => {
  /** Members that are paused, that hold the key for another client, and that are free. */
  async function claimed(kinds: string, overrides: Partial<Claim> = {}): Promise<Awaited<ReturnType<Driver["claim"]>>> {
    const stores = [...kinds].filter((kind) => kind === "p").map(() => pausedDriver());
    const opened = await Promise.all(stores);
    const members = await Promise.all(
      [...kinds].map(async (kind) => {
        if (kind === "p") return opened.pop()?.driver() as Promise<Driver>;
        const member = memory();
        await member.open(NO_EVENTS);
        if (kind === "h") await member.claim(makeClaim("key"));
        return member;
      }),
    );
    const quorumDriver = quorum(members);
    await quorumDriver.open(NO_EVENTS);
    const claim = makeClaim("key", { wait: false, ...overrides });
    const answer = await quorumDriver.claim(claim);
    await quorumDriver.release(toReleases(claim));
    await quorumDriver.close();
    for (const store of stores) await (await store).close?.();
    return answer;
  }

  const isPaused = { reason: "recovery", remainingMs: expect.any(Number) };

  test.each([
    ["pff", { state: "held" }],
    ["ppf", { state: "none", paused: isPaused }],
    ["pph", { state: "none", paused: isPaused }],
    ["pfh", { state: "none", paused: isPaused }],
    ["phh", { state: "none" }],
  ])("%s (p: pauses, f: free, h: held by another)", async (kinds, expected) => {
    const answer = await claimed(kinds);
    if (expected.state === "held") expect(answer.state).toBe("held");
    else expect(answer).toEqual(expected);
  });

  test("in whatever order its members answer, a pause is reported when it alone prevents a majority, and for as long", () => {
    const noneAnswer: Answer = { state: "none" };
    const pause = (remainingMs: number): Answer => ({ ...noneAnswer, paused: { reason: "recovery", remainingMs } });
    const createTally = (...answers: readonly Answer[]): Tally => {
      const tally = new Tally(3);
      for (const answer of answers) tally.add(answer);
      return tally;
    };
    expect(createTally(pause(5), noneAnswer, noneAnswer).paused).toBeUndefined();
    expect(createTally(pause(5), noneAnswer).paused).toMatchObject({ remainingMs: 5 });
    expect(createTally(pause(9), pause(5), noneAnswer).paused).toMatchObject({ remainingMs: 9 });
    expect(createTally(pause(9), pause(5), pause(7)).paused).toMatchObject({ remainingMs: 7 });
    expect(createTally(noneAnswer).paused).toBeUndefined();
  });

  test("a waiter is notified only where the pause is what it waits for", async () => {
    expect(await claimed("ppf", { wait: true })).toMatchObject({ state: "waiting", paused: isPaused });
    expect(await claimed("phh", { wait: true })).not.toHaveProperty("paused");
  });
});

describe("a majority of three servers: one recovers, and one answers last", () => {
  interface Scene {
    readonly locks: Locks;
    readonly driver: Driver;
    /** Direct drivers of the two servers that are not in recovery; the second of them answers last. */
    readonly others: readonly [Driver, Driver];
    /** To the last one: no answer passes until the driver has the others' answers to one claim; then `end` is called. */
    late<T>(call: () => Promise<T>, end?: (last: TcpProxy) => void): Promise<T>;
    /** How many claims on the key each of the two has. */
    places(): Promise<number[]>;
  }

  async function scene(): Promise<Scene> {
    const [recovers, second, third] = [await startServer({ state: "none" }), await startServer(), await startServer()];
    const last = await tcpProxy({ path: third.path }, { path: join(createTemporaryDirectory(), "socket") });
    onCleanup(() => last.close());
    let answerCount = 0;
    const members = [recovers.path, second.path, (last.address as { path: string }).path].map((path) => {
      const member = lockServer({ path });
      const claim = async (request: Claim): Promise<Answer> => {
        const answer = await member.claim(request);
        if (request.locks[0].key === "key") answerCount++;
        return answer;
      };
      return delegate(member, { claim });
    });
    const driver = quorum(members, { callTimeoutMs: 10_000 });
    // the driver waits an eighth of it for the last one
    const locks = createLocks(driver, { ttl: "60s" });
    onCleanup(() => locks.close());
    await (await locks.tryAcquire("another"))?.release();
    const others = [
      await openClient(`holdfast+unix:${second.path}`),
      await openClient(`holdfast+unix:${third.path}`),
    ] as const;
    return {
      locks,
      driver,
      others: [others[0].driver, others[1].driver],
      async late(call, end = ({ toClient }) => toClient.resume()) {
        answerCount = 0;
        last.toClient.pause();
        const settlement = Promise.allSettled([call()]);
        await until(() => answerCount === 2, { within: 10_000, what: "the answers of two members" });
        await turn(); // if they are decisive, the call has ended
        end(last);
        last.toClient.resume();
        const [result] = await settlement;
        if (result.status === "rejected") throw result.reason;
        return result.value;
      },
      places: () =>
        Promise.all(others.map(async (member) => (await member.driver.list({ key: "key" }, { max: 10 })).items.length)),
    };
  }

  test("a key held on the other two is busy, not paused", async () => {
    const { locks, driver, others, late, places } = await scene();
    const holder = makeClaim("key", { ttlMs: 60_000 });
    for (const member of others) expectHeld(await member.claim(holder));
    expect(await late(() => locks.tryAcquire("key"))).toBeNull();
    const waiter = makeClaim("key", { ttlMs: 60_000 });
    const answer = await late(() => driver.claim(waiter));
    expect(answer.state).toBe("waiting");
    expect(answer).not.toHaveProperty("paused");
    expect(await driver.release(toReleases(waiter))).toEqual([true]);
    expect(await places()).toEqual([1, 1]);
    for (const member of others) await member.release(toReleases(holder));
    const lock = await late(() => locks.tryAcquire("key"));
    expect(await lock?.release()).toBe(true);
  });

  test.each([
    ["is free", ({ toClient }: TcpProxy) => toClient.resume()],
    ["does not answer, since its connection breaks", (last: TcpProxy) => last.reset()],
  ])("a key held on one is paused if the last %s: unknown is not busy", async (_, end) => {
    const { locks, others, late, places } = await scene();
    expectHeld(await others[0].claim(makeClaim("key", { ttlMs: 60_000 })));
    await expect(late(() => locks.tryAcquire("key"), end)).rejects.toMatchObject({ code: "LOCK_STORE_PAUSED" });
    await until(async () => (await places()).join() === "1,0", { within: 10_000, what: "the holder's place alone" });
  });
});
