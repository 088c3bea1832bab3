import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { tableViolations } from "../support/inspect-table.ts";
import { watched } from "../support/watched-test.ts";

const long = process.env.HOLDFAST_LONG === "1";

conformance({ describe, test: watched(test) }, "memory", {
  open: async () => {
    const store = memoryStore();
    return { driver: () => memory({ store }), inspect: async () => tableViolations(store.table) };
  },
  verbs: ["detach", "revoke"],
  timeScale: 0.5,
  keys: long ? 1_000_000 : 50_000,
  random: long ? { seeds: 300, steps: 200 } : { seeds: 10 },
});
