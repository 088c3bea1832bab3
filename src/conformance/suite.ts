/**
 * The contract of drivers, as tests: `holdfast/conformance`. It is independent of the test runner: pass it your
 * `describe` and `test`. See docs/write-a-driver.md.
 */

import assert from "node:assert/strict";
import { testClientClose } from "./client/close.ts";
import { testDetachAttach } from "./client/detach-attach.ts";
import { testExclusion } from "./client/exclusion.ts";
import { testHandoffs } from "./client/handoffs.ts";
import { testLeases } from "./client/leases.ts";
import { testClientList } from "./client/list.ts";
import { testClientMultiKey } from "./client/multi-key.ts";
import { testRandomFaults } from "./client/random-faults.ts";
import { testReadWriteAndSemaphore } from "./client/read-write-semaphore.ts";
import { testReentrancy } from "./client/reentrancy.ts";
import { testClientRevoke } from "./client/revoke.ts";
import { testSessions } from "./client/sessions.ts";
import { testWaits } from "./client/waits.ts";
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
import { testRevoke } from "./driver/revoke.ts";
import { testTokens } from "./driver/tokens.ts";
import type { ConformanceOptions, ConformanceSettings, TestStore, Topic } from "./options.ts";
import { parseConformanceOptions } from "./options.ts";

export {
  type ChaosCommands,
  type ChaosDriver,
  type ChaosOptions,
  chaos,
  type PausedCall,
  type Verb,
} from "./chaos/driver.ts";
export type { ConformanceOptions, OptionalVerb, Skip, TestStore } from "./options.ts";
export { type OracleOptions, oracle } from "./oracle.ts";

/** The two functions of a test runner that the suite uses: those of vitest, jest, mocha and node:test fit. */
export interface Runner {
  readonly describe: (name: string, body: () => void) => unknown;
  /** If it has `skip`, skipped tests are shown with their reason. */
  readonly test: ((name: string, body: () => Promise<void>) => unknown) & {
    readonly skip?: (name: string, body: () => Promise<void>) => unknown;
  };
}

const TOPICS: readonly (readonly [string, Topic])[] = [
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
  ["client: sessions", testSessions],
  ["idle keys", testIdleKeys],
  ["against the lock table", testModel],
  ["client: exclusion", testExclusion],
  ["client: waiting", testWaits],
  ["client: leases", testLeases],
  ["client: reentrancy", testReentrancy],
  ["client: hand-off", testHandoffs],
  ["client: sharing", testReadWriteAndSemaphore],
  ["client: several keys", testClientMultiKey],
  ["client: travel", testDetachAttach],
  ["client: revoke", testClientRevoke],
  ["client: close", testClientClose],
  ["client: tools", testClientList],
  ["client: storms", testRandomFaults],
];

/**
 * Defines the tests of the contract for one driver. Every test opens a fresh store and checks at its end that the store
 * is empty.
 * @throws TypeError if an option is invalid
 */
export function conformance<S extends TestStore>(
  { describe, test }: Runner,
  name: string,
  options: ConformanceOptions<S>,
): void {
  const settings = parseConformanceOptions(options);
  const skips = options.skip ?? [];
  const foundNames = new Set<string>();
  const register = (title: string, topic: Topic, registeredSettings: ConformanceSettings): void => {
    const tests: (() => void)[] = [];
    topic((name, body) => {
      const skip = skips.find((candidate) => candidate.test === name);
      foundNames.add(name);
      if (skip === undefined) tests.push(() => test(name, () => runTest(registeredSettings, body)));
      else tests.push(() => test.skip?.(`${name} (${skip.reason})`, async () => undefined));
    }, registeredSettings);
    if (tests.length === 0) return; // some runners fail on empty groups
    describe(title, () => {
      for (const add of tests) add();
    });
  };
  describe(`${name} conforms`, () => {
    for (const [title, topic] of TOPICS) register(title, topic, settings);
    const { openPaused } = settings;
    if (openPaused !== undefined) register("pauses", testPauses, { ...settings, open: openPaused });
    if (skips.length === 0) return;
    test("every test to be skipped exists", async () => {
      assert.deepEqual(
        skips.map((skip) => skip.test).filter((title) => !foundNames.has(title)),
        [],
      );
    });
  });
}
