import { describe, expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../../support/leak-checked-test.ts";
import { createServerStore } from "../../support/stores/server-store.ts";

const long = process.env.HOLDFAST_LONG === "1";
const openQuorum = (): ReturnType<typeof createServerStore> => createServerStore(() => "holdfast://127.0.0.1:0");

test("stores of different kinds form one majority: a lock outlives the restart of one, and tokens rise", async () => {
  const store = memoryStore();
  const [one, two] = [await openQuorum(), await openQuorum()];
  const client = async (): Promise<ReturnType<typeof createLocks>> =>
    createLocks(quorum([memory({ store }), await one.driver(), await two.driver()]), { ttl: 12_000, order: "strict" });
  const [holder, other] = [await client(), await client()];
  const lock = await holder.acquire("key");
  const { token } = lock;
  await one.restart();
  expect(await other.tryAcquire("key")).toBeNull();
  const waits = other.acquire("key", { wait: "10s" });
  expect(await lock.release()).toBe(true);
  const next = await waits;
  expect(next.token).toBeGreaterThan(token);
  // the restarted member may have missed the release: it is repeated when it next answers the holder
  const states = async (): Promise<string[]> => {
    await holder.list("");
    return (await other.list("")).map(({ state }) => state);
  };
  await until(async () => (await states()).join() === "held", { within: 5_000, what: "one claim, which is held" });
  await next.release();
  for (const locks of [holder, other]) await locks.close();
  for (const place of [one, two]) await place.close?.();
}, 30_000);

if (long) {
  testDriver({ describe, test: leakCheckedTest(test) }, "a majority of three lock servers", {
    open: async () => {
      const stores = [await openQuorum(), await openQuorum(), await openQuorum()];
      return {
        driver: async () => quorum(await Promise.all(stores.map(async (store) => store.driver()))),
        async close() {
          for (const store of stores) await store.close?.();
        },
      };
    },
    traits: { manyKeys: false, permits: "shared", fifo: false, recall: "push" },
    verbs: ["detach"],
    // each of them waits for the disk, and the majority an eighth of a lease for them
    timeScale: 3,
    keys: 2_000,
    random: { seeds: 20, steps: 100 },
  });
}
