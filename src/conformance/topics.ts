/** The topics of the contract, and how a test runner gets their tests. */

import assert from "node:assert/strict";
import type { Topic } from "./context.ts";
import { runTest } from "./context.ts";
import { testClose } from "./driver/close.ts";
import { testContention } from "./driver/contention.ts";
import { testDetach } from "./driver/detach.ts";
import { testExpiry } from "./driver/expiry.ts";
import { testIdempotence } from "./driver/idempotence.ts";
import { testIdleKeys } from "./driver/idle-keys.ts";
import { testLifecycle } from "./driver/lifecycle.ts";
import { testList } from "./driver/list.ts";
import { testLostReplies } from "./driver/lost-replies.ts";
import { testModel } from "./driver/model.ts";
import { testMultiKey } from "./driver/multi-key.ts";
import { testOrder } from "./driver/order.ts";
import { testPauses } from "./driver/pauses.ts";
import { testPermits } from "./driver/permits.ts";
import { testRecall } from "./driver/recall.ts";
import { testRevoke } from "./driver/revoke.ts";
import { testSuccessors } from "./driver/successors.ts";
import { testTokens } from "./driver/tokens.ts";
import { testRandomFaults } from "./end-to-end.ts";
import type { ConformanceOptions, ConformanceSettings, TestStore } from "./options.ts";
import { parseConformanceOptions } from "./options.ts";

/** The two functions of a test runner that the suite uses: those of vitest, jest, mocha and node:test fit. */
export interface Runner {
  readonly describe: (name: string, body: () => void) => unknown;
  /** If it has `skip`, skipped tests are shown with their reason. */
  readonly test: ((name: string, body: () => Promise<void>) => unknown) & {
    readonly skip?: (name: string, body: () => Promise<void>) => unknown;
  };
}

/** Topics with their titles. */
export type Topics = readonly (readonly [title: string, topic: Topic])[];

export const DRIVER_TOPICS: Topics = [
  ["lifecycle", testLifecycle],
  ["contention", testContention],
  ["order", testOrder],
  ["expiry", testExpiry],
  ["idempotence", testIdempotence],
  ["lost replies", testLostReplies],
  ["many keys", testMultiKey],
  ["permits", testPermits],
  ["tokens", testTokens],
  ["list", testList],
  ["close", testClose],
  ["detach", testDetach],
  ["revoke", testRevoke],
  ["recall", testRecall],
  ["successors", testSuccessors],
  ["idle keys", testIdleKeys],
  ["against the lock table", testModel],
  ["end to end, under random faults", testRandomFaults],
];

/** Defines the tests of these topics, and of pauses if the driver's store pauses. A skip that names no test is a failure. */
export function defineTests<S extends TestStore>(
  { describe, test }: Runner,
  title: string,
  topics: Topics,
  options: ConformanceOptions<S>,
): void {
  const settings = parseConformanceOptions(options);
  const skips = options.skip ?? [];
  const foundNames = new Set<string>();
  const register = (group: string, topic: Topic, registeredSettings: ConformanceSettings): void => {
    const tests: (() => void)[] = [];
    topic((name, body) => {
      const skip = skips.find((candidate) => candidate.test === name);
      foundNames.add(name);
      if (skip === undefined) tests.push(() => test(name, () => runTest(registeredSettings, body)));
      else tests.push(() => test.skip?.(`${name} (${skip.reason})`, async () => undefined));
    }, registeredSettings);
    if (tests.length === 0) return; // some runners fail on empty groups
    describe(group, () => {
      for (const add of tests) add();
    });
  };
  describe(title, () => {
    for (const [name, topic] of topics) register(name, topic, settings);
    const { openPaused } = settings;
    if (openPaused !== undefined) register("pauses", testPauses, { ...settings, open: openPaused });
    if (skips.length === 0) return;
    test("every test to be skipped exists", async () => {
      assert.deepEqual(
        skips.map((skip) => skip.test).filter((name) => !foundNames.has(name)),
        [],
      );
    });
  });
}
