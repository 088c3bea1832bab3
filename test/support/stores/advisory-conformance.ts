/** What every driver of advisory locks is held to. */

import type { TestAPI } from "vitest";
import { describe, expect, test } from "vitest";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import { REDIS_SUITE_OPTIONS } from "./redis-conformance.ts";

const SESSION_MS = 4_000;

export interface AdvisoryStore {
  readonly permits: "shared" | "one";
  /** A driver that is not open. */
  driver(options: { readonly sessionMs: number }): Driver;
  /** What is wrong with the locks of the server. */
  inspect?(): Promise<readonly string[]>;
  /** How many locks are held and waited for. */
  countLocks(): Promise<number>;
}

export function registerAdvisoryConformance(name: string, store: AdvisoryStore): void {
  testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, name, {
    ...REDIS_SUITE_OPTIONS,
    traits: {
      lease: { claim: false, sessionMs: SESSION_MS },
      manyKeys: false,
      permits: store.permits,
      fencing: false,
      fifo: false,
      list: "own",
    },
    verbs: [],
    timeScale: 1,
    // each costs two round trips and leaves nothing behind
    keys: process.env.HOLDFAST_LONG === "1" ? 100_000 : 200,
    open: async () => ({
      driver: () => store.driver({ sessionMs: SESSION_MS }),
      ...(store.inspect !== undefined && { inspect: () => store.inspect?.() ?? Promise.resolve([]) }),
      // no client lists the locks of others, so the server says whether any is left
      close: async () => {
        await until(async () => (await store.countLocks()) === 0, { within: 3_000, what: "the end of all locks" });
        expect(await store.countLocks()).toBe(0);
      },
    }),
  });
}
