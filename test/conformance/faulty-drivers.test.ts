// The test of the test: the suite passes the memory driver (test/conformance/memory.test.ts) and fails each of these.

import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { memoryStore } from "../../src/drivers/memory.ts";
import type { FaultyDriver } from "./faulty-drivers.ts";
import { FAULTY_DRIVERS } from "./faulty-drivers.ts";
import type { RecordedTest } from "./suite-recorder.ts";
import { recordSuite, runExpectingFailure } from "./suite-recorder.ts";

function recordSuiteFor(faultyDriver: FaultyDriver): readonly RecordedTest[] {
  return recordSuite({
    open: async () => {
      const store = memoryStore();
      return { driver: () => faultyDriver.create(store) };
    },
    traits: { recall: "push" },
    verbs: ["detach", "revoke"],
    keys: 500,
    random: { seeds: 1 },
    timeScale: faultyDriver.timeScale ?? 0.2,
  });
}

describe.concurrent.each(FAULTY_DRIVERS)("a driver that $fault", (faultyDriver) => {
  test.each(Object.entries(faultyDriver.caughtBy))("fails: %s", { timeout: 30_000 }, async (beginning, message) => {
    const named = recordSuiteFor(faultyDriver).filter(({ name }) => name.startsWith(beginning));
    assert.equal(named.length, 1, `one test of the suite begins with "${beginning}"`);
    let failure: string | null = null;
    // on a busy machine a test about time may fail in another way first
    for (let attempt = 0; attempt < 3 && !message.test(failure ?? ""); attempt++) {
      failure = await runExpectingFailure(named[0] as RecordedTest);
    }
    assert.match(failure ?? "the suite did not notice", message);
  });
});
