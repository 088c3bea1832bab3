// Drivers with fewer capabilities, derived from the memory driver: the suite must test only the declared ones.

import { describe, test } from "vitest";
import type { ConformanceOptions } from "../../src/conformance/suite.ts";
import type { MemoryStore } from "../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { Answer, Driver, Traits } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { testDriver } from "../client/suite.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";

/** Like an advisory lock of a database: a session, one key, exclusive only, no tokens. */
const ADVISORY_TRAITS: Traits = {
  lease: { claim: false, sessionMs: 30_000 },
  manyKeys: false,
  permits: "one",
  fencing: false,
  fifo: true,
  durability: "process",
  recall: false,
};

/** Like a store of rows: readers and writers, one key at a time. */
const ROW_LOCK_TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false,
  permits: "shared",
  fencing: true,
  fifo: true,
  durability: "restart",
  recall: false,
};

function limitDriver(store: MemoryStore, traits: Traits): Driver {
  const { detach: _detach, revoke: _revoke, ...correctDriver } = memory({ store });
  const plain = (answer: Answer): Answer => {
    if (answer.state === "waiting") return { ...answer, recheckMs: 10 };
    return answer.state === "held" && !traits.fencing ? { ...answer, token: 0n, tokenCount: 1 } : answer;
  };
  return delegate(correctDriver, {
    claim: async (claim) => plain(await correctDriver.claim(claim)),
    renew: async (claims) => (await correctDriver.renew(claims)).map((answer) => answer && plain(answer)),
    // it cannot push, so its waiters poll often
    open: async () => {
      await correctDriver.open(NO_EVENTS);
      return traits;
    },
  });
}

function suiteOptions(traits: Traits): ConformanceOptions {
  const { durability: _survives, ...declared } = traits;
  return {
    open: async () => {
      const store = memoryStore();
      return { driver: () => limitDriver(store, traits) };
    },
    traits: declared,
    timeScale: 0.4,
    keys: 500,
    random: { seeds: 1 },
  };
}

describe("a driver with fewer capabilities", () => {
  testDriver({ describe, test: leakCheckedTest(test) }, "like an advisory lock", suiteOptions(ADVISORY_TRAITS));
  testDriver({ describe, test: leakCheckedTest(test) }, "like rows", suiteOptions(ROW_LOCK_TRAITS));
});
