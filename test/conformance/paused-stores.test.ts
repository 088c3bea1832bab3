// Stores that grant nothing new because what stands behind them does not: a relay, and a majority.

import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Locks } from "../../src/client/locks.ts";
import { createLocks } from "../../src/client/locks.ts";
import { delegate } from "../../src/conformance/delegate.ts";
import type { Runner, Store } from "../../src/conformance/suite.ts";
import { conformance } from "../../src/conformance/suite.ts";
import { memory } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { Round } from "../../src/drivers/quorum/round.ts";
import { server } from "../../src/drivers/server/driver.ts";
import { serve } from "../../src/server/serve.ts";
import type { Answer, Claim, Driver } from "../../src/spi/driver.ts";
import { claimOf, cleanUp, client, folder, held, later, running } from "../server/support.ts";
import { serverStore } from "../support/server-store.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { watched } from "../support/watched-test.ts";

cleanUp();

/** Only the tests of stores that pause. */
function pausesOnly(): Runner {
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
    test: watched(test),
  };
}

const never = async (): Promise<Store> => {
  throw new Error("only the tests of pauses are run");
};
const paused = () => serverStore((folder) => `unix:${join(folder, "socket")}`, true);

conformance(pausesOnly(), "a relay in front of a server that recovers", {
  open: never,
  openPaused: async () => {
    // one on a Unix socket cannot be the store of another
    const behind = await serverStore(() => "tcp://127.0.0.1:0", true);
    const relay = await serve({ listen: "tcp://127.0.0.1:0", driver: await behind.driver(), log: () => undefined });
    const port = Number(relay.addresses[0]?.split(":").at(-1));
    return {
      driver: () => server({ host: "127.0.0.1", port }),
      async close() {
        await relay.close();
        await behind.close?.();
      },
    };
  },
  timeScale: 0.5,
});

conformance(pausesOnly(), "a majority of servers that recover", {
  open: never,
  openPaused: async () => {
    const members = await Promise.all([paused(), paused(), paused()]);
    return {
      driver: async () => quorum(await Promise.all(members.map(async (member) => member.driver()))),
      close: async () => void (await Promise.all(members.map(async (member) => member.close?.()))),
    };
  },
  traits: { manyKeys: false, permits: "shared", fifo: false },
  timeScale: 0.5,
});

describe("a majority of three", () => {
  /** Members that pause, that hold the key for somebody else, and that are free. */
  async function claimed(kinds: string, terms: Partial<Claim> = {}): Promise<Awaited<ReturnType<Driver["claim"]>>> {
    const stores = [...kinds].filter((kind) => kind === "p").map(() => paused());
    const opened = await Promise.all(stores);
    const members = await Promise.all(
      [...kinds].map(async (kind) => {
        if (kind === "p") return opened.pop()?.driver() as Promise<Driver>;
        const member = memory();
        await member.open(() => undefined);
        if (kind === "h") await member.claim(claimOf("key"));
        return member;
      }),
    );
    const all = quorum(members);
    await all.open(() => undefined);
    const claim = claimOf("key", { wait: false, ...terms });
    const answer = await all.claim(claim);
    await all.release([claim]);
    await all.close();
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

  test("whatever order its members answer in, a pause is what keeps it from a majority, for as long as that", () => {
    const none: Answer = { state: "none" };
    const pause = (remainingMs: number): Answer => ({ ...none, paused: { reason: "recovery", remainingMs } });
    const heard = (...answers: readonly Answer[]): Round => {
      const round = new Round(3);
      for (const answer of answers) round.said(answer);
      return round;
    };
    expect(heard(pause(5), none, none).paused).toBeUndefined();
    expect(heard(pause(5), none).paused).toMatchObject({ remainingMs: 5 });
    expect(heard(pause(9), pause(5), none).paused).toMatchObject({ remainingMs: 9 });
    expect(heard(pause(9), pause(5), pause(7)).paused).toMatchObject({ remainingMs: 7 });
    expect(heard(none).paused).toBeUndefined();
  });

  test("whoever waits is told only where the pause is what it waits for", async () => {
    expect(await claimed("ppf", { wait: true })).toMatchObject({ state: "waiting", paused: isPaused });
    expect(await claimed("phh", { wait: true })).not.toHaveProperty("paused");
  });
});

describe("a majority of three servers: one recovers, and one answers last", () => {
  interface Scene {
    readonly locks: Locks;
    readonly driver: Driver;
    /** Direct drivers of the two servers that do not recover; the second of them answers last. */
    readonly others: readonly [Driver, Driver];
    /** To the last one: no answer passes until the driver has the others' answers to one claim; then `end` is called. */
    late<T>(call: () => Promise<T>, end?: (last: TcpProxy) => void): Promise<T>;
    /** How many claims on the key each of the two has. */
    places(): Promise<number[]>;
  }

  async function scene(): Promise<Scene> {
    const [recovers, second, third] = [await running({ state: "none" }), await running(), await running()];
    const last = await tcpProxy({ path: third.path }, { path: join(folder(), "socket") });
    later(() => last.close());
    let answered = 0;
    const members = [recovers.path, second.path, (last.address as { path: string }).path].map((path) => {
      const member = server({ path });
      const claim = async (asked: Claim): Promise<Answer> => {
        const answer = await member.claim(asked);
        if (asked.holds[0].key === "key") answered++;
        return answer;
      };
      return delegate(member, { claim });
    });
    const driver = quorum(members, { callTimeoutMs: 10_000 });
    // an eighth of it is how long the last one is waited for
    const locks = createLocks(driver, { ttl: "60s" });
    later(() => locks.close());
    await (await locks.tryAcquire("another"))?.release();
    const others = [await client(`unix:${second.path}`), await client(`unix:${third.path}`)] as const;
    return {
      locks,
      driver,
      others: [others[0].driver, others[1].driver],
      async late(call, end = ({ down }) => down.resume()) {
        answered = 0;
        last.down.pause();
        const settled = Promise.allSettled([call()]);
        await until(() => answered === 2, { within: 10_000, what: "the answers of two members" });
        await turn(); // if they decide, the call is over
        end(last);
        last.down.resume();
        const [result] = await settled;
        if (result.status === "rejected") throw result.reason;
        return result.value;
      },
      places: () => Promise.all(others.map(async (member) => (await member.driver.list({ key: "key" }, 10)).length)),
    };
  }

  test("a key that the other two hold is busy, not paused", async () => {
    const { locks, driver, others, late, places } = await scene();
    const holder = claimOf("key", { ttlMs: 60_000 });
    for (const member of others) held(await member.claim(holder));
    expect(await late(() => locks.tryAcquire("key"))).toBeNull();
    const waiter = claimOf("key", { ttlMs: 60_000 });
    const answer = await late(() => driver.claim(waiter));
    expect(answer.state).toBe("waiting");
    expect(answer).not.toHaveProperty("paused");
    expect(await driver.release([waiter])).toEqual([true]);
    expect(await places()).toEqual([1, 1]);
    for (const member of others) await member.release([holder]);
    const lock = await late(() => locks.tryAcquire("key"));
    expect(await lock?.release()).toBe(true);
  });

  test.each([
    ["is free", ({ down }: TcpProxy) => down.resume()],
    ["does not answer, since its connection breaks", (last: TcpProxy) => last.reset()],
  ])("a key that one holds is paused if the last %s: unknown is not busy", async (_, end) => {
    const { locks, others, late, places } = await scene();
    held(await others[0].claim(claimOf("key", { ttlMs: 60_000 })));
    await expect(late(() => locks.tryAcquire("key"), end)).rejects.toMatchObject({ code: "PAUSED" });
    await until(async () => (await places()).join() === "1,0", { within: 10_000, what: "the holder's place alone" });
  });
});
