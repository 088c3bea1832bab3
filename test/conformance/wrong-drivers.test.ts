// The test of the test: the suite passes the memory driver (test/drivers/memory.test.ts) and fails each of these.

import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { memoryStore } from "../../src/drivers/memory.ts";
import type { Recorded } from "./recorded-suite.ts";
import { failureOf, recordedSuite } from "./recorded-suite.ts";
import type { Wrong } from "./wrong-drivers.ts";
import { WRONG_DRIVERS } from "./wrong-drivers.ts";

function suiteOf(wrong: Wrong): readonly Recorded[] {
  return recordedSuite({
    open: async () => {
      const store = memoryStore();
      return { driver: () => wrong.make(store) };
    },
    verbs: ["detach", "revoke"],
    keys: 500,
    random: { seeds: 1 },
    timeScale: wrong.timeScale ?? 0.2,
  });
}

describe.concurrent.each(WRONG_DRIVERS)("a driver that $fault", (wrong) => {
  test.each(Object.entries(wrong.caughtBy))("fails: %s", { timeout: 30_000 }, async (beginning, said) => {
    const named = suiteOf(wrong).filter(({ name }) => name.startsWith(beginning));
    assert.equal(named.length, 1, `one test of the suite begins with "${beginning}"`);
    let failure: string | null = null;
    // on a busy machine a test about time may fail in another way first
    for (let attempt = 0; attempt < 3 && !said.test(failure ?? ""); attempt++) {
      failure = await failureOf(named[0] as Recorded);
    }
    assert.match(failure ?? "the suite did not notice", said);
  });
});
