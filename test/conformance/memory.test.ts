import { describe, test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { tableOf } from "../../src/drivers/memory-store.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { findTableViolations } from "../support/stores/table-inspector.ts";

const long = process.env.HOLDFAST_LONG === "1";

testDriver({ describe, test: leakCheckedTest(test) }, "memory", {
  open: async () => {
    const store = memoryStore();
    return { driver: () => memory({ store }), inspect: async () => findTableViolations(tableOf(store)) };
  },
  traits: { recall: "push" },
  verbs: ["detach", "revoke"],
  timeScale: 0.5,
  keys: long ? 1_000_000 : 50_000,
  random: long ? { seeds: 300, steps: 200 } : { seeds: 10 },
});
