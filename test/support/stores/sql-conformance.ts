/** What every client library of a database is held to, beside the one that shows the complete suite. */

import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import type { ConformanceOptions, Runner, TestStore } from "../../../src/conformance/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import { REDIS_SUITE_OPTIONS } from "./redis-conformance.ts";

const isLongRun = process.env.HOLDFAST_LONG === "1";

export const SQL_SUITE_OPTIONS: Omit<ConformanceOptions<TestStore>, "open"> = {
  ...REDIS_SUITE_OPTIONS,
  traits: { manyKeys: false, recall: "recheck" },
  keys: isLongRun ? 100_000 : 100,
  ...(!isLongRun && { random: { seeds: 1 } }),
};

/** What depends on the library. The other topics test what the dialect does with its rows. */
const DRIVER_TOPICS = /^(?:lifecycle|contention|lost replies|close)$/;
/** And those of the client with calls of every kind. Its other topics make the same calls at other times. */
const ALL_TOPICS = new RegExp(
  `${DRIVER_TOPICS.source}|^client: (?:sessions|exclusion|several keys|revoke|close|list)$`,
);
/** These make the same claims as those of a mutex. */
const EQUAL_LOCKS = /^(?:write|all of one key|semaphore of one): /;

/**
 * A runner that registers what depends on the library, without the suite of the client if the library is shown by it already;
 * with HOLDFAST_LONG=1 it registers everything.
 */
export function createLibraryRunner(topics: "all" | "driver" = "all"): Runner {
  return createTopicRunner(topics === "all" ? ALL_TOPICS : DRIVER_TOPICS);
}

/** A runner that registers the wanted topics, without those that make the same claims; with HOLDFAST_LONG=1 all. */
export function createTopicRunner(wanted: RegExp): Runner {
  const checkedTest = leakCheckedTest(test as TestAPI);
  if (isLongRun) return { describe, test: checkedTest };
  let depth = 0;
  const testMutex = (name: string, body: () => Promise<void>): void => {
    if (!EQUAL_LOCKS.test(name)) checkedTest(name, body);
  };
  return {
    describe(name, body) {
      if (depth === 1 && !wanted.test(name)) return;
      describe(name, () => {
        depth++;
        body();
        depth--;
      });
    },
    test: Object.assign(testMutex, { skip: checkedTest.skip }),
  };
}

/** Looking at the tables after each call would take half of the time. Long runs do it for each library. */
export function inspectInLongRun(inspect: () => Promise<readonly string[]>): Pick<TestStore, "inspect"> {
  return isLongRun ? { inspect } : {};
}
