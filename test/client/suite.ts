/** Tests of the client that run over every driver, together with the contract of drivers. */

import type { ConformanceOptions, Runner, TestStore } from "../../src/conformance/suite.ts";
import type { Topics } from "../../src/conformance/topics.ts";
import { DRIVER_TOPICS, defineTests } from "../../src/conformance/topics.ts";
import { testCachedLocks } from "./cached-locks.ts";
import { testClientClose } from "./close.ts";
import { testDetachAttach } from "./detach-attach.ts";
import { testExclusion } from "./exclusion.ts";
import { testForget } from "./forget.ts";
import { testHandoffs } from "./handoffs.ts";
import { testLeases } from "./leases.ts";
import { testClientList } from "./list.ts";
import { testClientMultiKey } from "./multi-key.ts";
import { testReadWriteAndSemaphore } from "./read-write-semaphore.ts";
import { testReentrancy } from "./reentrancy.ts";
import { testClientRevoke } from "./revoke.ts";
import { testSessions } from "./sessions.ts";
import { testWaits } from "./waits.ts";

const CLIENT_TOPICS: Topics = [
  ["client: sessions", testSessions],
  ["client: exclusion", testExclusion],
  ["client: waiting", testWaits],
  ["client: leases", testLeases],
  ["client: reentrancy", testReentrancy],
  ["client: hand-off", testHandoffs],
  ["client: cached locks", testCachedLocks],
  ["client: readers and semaphores", testReadWriteAndSemaphore],
  ["client: several keys", testClientMultiKey],
  ["client: detach and attach", testDetachAttach],
  ["client: revoke", testClientRevoke],
  ["client: close", testClientClose],
  ["client: forgotten claims", testForget],
  ["client: list", testClientList],
];

/** Defines the tests of the contract, and those of the client, for one driver. */
export function testDriver<S extends TestStore>(runner: Runner, name: string, options: ConformanceOptions<S>): void {
  defineTests(runner, `${name} conforms`, [...DRIVER_TOPICS, ...CLIENT_TOPICS], options);
}
