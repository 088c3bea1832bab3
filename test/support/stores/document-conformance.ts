/** The suites of drivers and of the client on a store with a conditional write: chosen tests of them, and in long runs all. */

import { describe, expect, test } from "vitest";
import { createDocumentDriver } from "../../../src/drivers/document/driver.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import type { StoreAddress } from "./document-stores.ts";
import { createStore } from "./document-stores.ts";

interface DocumentConformance {
  /** A bucket, table or prefix of its own each time. */
  address(): Promise<StoreAddress>;
  readonly canWatch: boolean;
  /** How much slower than usual the store is. */
  readonly timeScale: number;
  /** Names of tests. */
  readonly chosen: readonly string[];
}

const isLongRun = process.env.HOLDFAST_LONG === "1";
/** Leases of tests are shorter than those that users may have. */
const MIN_TTL_MS = 100;

export function documentConformance(name: string, { address, canWatch, timeScale, chosen }: DocumentConformance): void {
  const found = new Set<string>();
  const register = leakCheckedTest(test);
  const choose: typeof register = Object.assign((testName: string, body: () => Promise<void>) => {
    found.add(testName);
    if (isLongRun || chosen.includes(testName)) register(testName, body);
  }, register);
  testDriver({ describe, test: choose }, name, {
    async open() {
      const where = await address();
      return {
        driver: () =>
          createDocumentDriver(createStore(where), { documents: 2, pollMs: 50, callTimeoutMs: 5_000 }, MIN_TTL_MS),
      };
    },
    traits: { lease: { claim: true, observed: true }, manyKeys: false, recall: canWatch ? "push" : "recheck" },
    verbs: ["detach", "revoke"],
    timeScale,
    keys: 100,
    random: { seeds: isLongRun ? 3 : 1 },
  });

  test("each chosen test exists", () => {
    expect(chosen.filter((one) => !found.has(one))).toEqual([]);
  });
}
