import { afterAll, beforeAll, describe, test } from "vitest";
import { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import type { ZooKeeperServer } from "../support/stores/zookeeper.ts";
import { startZooKeeper } from "../support/stores/zookeeper.ts";
import { findZooKeeperViolations } from "../support/stores/zookeeper-inspector.ts";

const SESSION_MS = 4_000;
const long = process.env.HOLDFAST_LONG === "1";
let server: ZooKeeperServer;
let zk: ZooKeeper;
let stores = 0;

beforeAll(async () => {
  server = await startZooKeeper();
  zk = new ZooKeeper({ servers: [server.address] });
  await zk.open();
}, 60_000);

afterAll(async () => {
  await zk.close();
  await server[Symbol.asyncDispose]();
});

testDriver({ describe, test: leakCheckedTest(test) }, "ZooKeeper", {
  traits: { lease: { claim: false, sessionMs: SESSION_MS }, manyKeys: false, recall: "push" },
  skip: [
    {
      test: "a waiter that asks again recalls the holder again, and it asks soon",
      reason: "a watch is not lost while the session lives, so a waiter repeats nothing",
    },
  ],
  verbs: ["revoke"],
  keys: long ? 20_000 : 500,
  random: long ? { seeds: 50, steps: 100 } : { seeds: 2 },
  timeScale: 2,
  async open() {
    const root = `/store-${++stores}`;
    return {
      driver: () => zookeeper({ servers: [server.address], root, sessionMs: SESSION_MS }),
      inspect: () => findZooKeeperViolations(zk, { root }),
    };
  },
});
