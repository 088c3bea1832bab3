import { describe, test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { tableOf } from "../../src/drivers/memory-store.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { findTableViolations } from "../support/stores/table-inspector.ts";

const long = process.env.HOLDFAST_LONG === "1";

for (const members of long ? [3, 5] : [3]) {
  testDriver({ describe, test: leakCheckedTest(test) }, `a majority of ${members} memories`, {
    open: async () => {
      const stores = Array.from({ length: members }, () => memoryStore());
      return {
        driver: () => quorum(stores.map((store) => memory({ store }))),
        inspect: async () => stores.flatMap((store) => findTableViolations(tableOf(store))),
      };
    },
    traits: { manyKeys: false, permits: "shared", fifo: false, recall: "push" },
    verbs: ["detach"],
    timeScale: 0.5,
    keys: long ? 50_000 : 500,
    random: long ? { seeds: 100, steps: 200 } : { seeds: 2 },
  });
}
