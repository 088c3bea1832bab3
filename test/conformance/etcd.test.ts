import { afterAll, beforeAll, describe, test } from "vitest";
import { etcd } from "../../src/drivers/etcd/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import type { EtcdServer } from "../support/stores/etcd.ts";
import { startEtcd } from "../support/stores/etcd.ts";

const long = process.env.HOLDFAST_LONG === "1";
const NOTHING_IS_LOST = "a watch misses nothing while the servers keep the history, so a waiter repeats nothing";
let server: EtcdServer;
let stores = 0;

beforeAll(async () => {
  server = await startEtcd();
}, 60_000);

afterAll(() => server[Symbol.asyncDispose]());

testDriver({ describe, test: leakCheckedTest(test) }, "etcd", {
  traits: { lease: { claim: true }, manyKeys: false, recall: "push" },
  verbs: ["detach", "revoke"],
  skip: [
    { test: "a waiter that asks again recalls the holder again, and it asks soon", reason: NOTHING_IS_LOST },
    {
      test: "a recall that is lost costs a waiter little: behind an idle lock, and behind a client that is always busy",
      reason: NOTHING_IS_LOST,
    },
  ],
  keys: long ? 20_000 : 500,
  random: long ? { seeds: 50, steps: 100 } : { seeds: 2 },
  timeScale: 2,
  async open() {
    const prefix = `store-${++stores}/`;
    return {
      driver: () => etcd({ servers: [server.address], prefix }),
    };
  },
});
