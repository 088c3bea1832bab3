// Random clients while the disk hangs and fails, and the server ends: no two holders overlap, tokens rise, every call is
// answered, nothing is left in the end, and all counted resources have been returned.

import { expect, test } from "vitest";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { cleanUpAfterEach } from "../support/server-fixture.ts";
import { StorageWorkload } from "./storage-workload.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** Seeds that found faults, and others. HOLDFAST_LONG=1 has many more. */
const SEED_COUNT = [
  264,
  ...Array.from({ length: process.env.HOLDFAST_LONG === "1" ? 500 : 11 }, (_, index) => index + 1),
];

test.each(SEED_COUNT)(
  "no two holders overlap and nothing is left after random disk failures (seed %i)",
  async (seed) => {
    const workload = new StorageWorkload(seededRandom(seed));
    await workload.run(300);
    expect(workload.faults, workload.trace.slice(-150).join("\n")).toEqual([]);
  },
);
