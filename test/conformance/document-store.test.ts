import { describe, test } from "vitest";
import { createDocumentDriver } from "../../src/drivers/document/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { MemoryDocuments } from "../support/stores/memory-documents.ts";

const long = process.env.HOLDFAST_LONG === "1";

for (const canWatch of [false, true]) {
  testDriver({ describe, test: leakCheckedTest(test) }, `document${canWatch ? ", watched" : ""}`, {
    async open() {
      const documents = new MemoryDocuments();
      return {
        driver: () => createDocumentDriver(documents.client({ canWatch }), { documents: 3, pollMs: 10 }, 100),
        inspect: async () => documents.findViolations(),
      };
    },
    traits: {
      lease: { claim: true, observed: true },
      manyKeys: false,
      recall: canWatch ? "push" : "recheck",
    },
    verbs: ["detach", "revoke"],
    timeScale: 0.5,
    keys: 1_000,
    random: long ? { seeds: 100, steps: 200 } : { seeds: 5 },
  });
}
