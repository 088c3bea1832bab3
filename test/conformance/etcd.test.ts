import { describe, test } from "vitest";
import { etcd } from "../../src/drivers/etcd/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";

const long = process.env.HOLDFAST_LONG === "1";
let stores = 0;
const run = process.pid;

testDriver({ describe, test: leakCheckedTest(test) }, "etcd", {
  traits: { lease: { claim: true }, manyKeys: false, recall: "push" },
  verbs: ["detach", "revoke"],
  keys: long ? 20_000 : 500,
  random: long ? { seeds: 50, steps: 100 } : { seeds: 2 },
  timeScale: 4,
  async open() {
    const prefix = `run-${run}/store-${++stores}/`;
    return {
      driver: () => etcd({ servers: [{ host: "127.0.0.1", port: 23800 }], prefix }),
    };
  },
});
