import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { leakCheck } from "../support/leak-check.ts";

const long = process.env.HOLDFAST_LONG === "1";

describe("memory", () => {
  leakCheck();
  conformance({ describe, test }, "memory", {
    open: async () => {
      const store = memoryStore();
      return { driver: () => memory({ store }) };
    },
    verbs: ["detach", "revoke"],
    keys: long ? 1_000_000 : 20_000,
    random: { seeds: long ? 2_000 : 20 },
  });
});
