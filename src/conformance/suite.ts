/**
 * What every driver must do, as tests: `holdfast/conformance`. It knows no test runner: give it your `describe` and
 * `test`. See docs/write-a-driver.md.
 */

import assert from "node:assert/strict";
import { clientClosing } from "./client/closing.ts";
import { exclusion } from "./client/exclusion.ts";
import { handoffs } from "./client/handoffs.ts";
import { leases } from "./client/leases.ts";
import { reentrancy } from "./client/reentrancy.ts";
import { clientRevoking } from "./client/revoking.ts";
import { sessions } from "./client/sessions.ts";
import { severalKeys } from "./client/several-keys.ts";
import { sharing } from "./client/sharing.ts";
import { storms } from "./client/storms.ts";
import { clientTools } from "./client/tools.ts";
import { travel } from "./client/travel.ts";
import { waiting } from "./client/waiting.ts";
import { againstTable } from "./driver/against-table.ts";
import { closing } from "./driver/closing.ts";
import { contention } from "./driver/contention.ts";
import { detaching } from "./driver/detach.ts";
import { expiry } from "./driver/expiry.ts";
import { idempotence } from "./driver/idempotence.ts";
import { idleKeys } from "./driver/idle-keys.ts";
import { lifecycle } from "./driver/lifecycle.ts";
import { listing } from "./driver/listing.ts";
import { lostReplies } from "./driver/lost-replies.ts";
import { manyKeys } from "./driver/many-keys.ts";
import { order } from "./driver/order.ts";
import { pauses } from "./driver/pauses.ts";
import { permits } from "./driver/permits.ts";
import { revoking } from "./driver/revoke.ts";
import { tokens } from "./driver/tokens.ts";
import { perform } from "./scene.ts";
import type { ConformanceOptions, Store, Subject, Topic } from "./subject.ts";
import { subjectOf } from "./subject.ts";

export { type ChaosDriver, type ChaosOptions, type Commands, chaos, type Stopped, type Verb } from "./chaos.ts";
export { type OracleOptions, oracle } from "./oracle.ts";
export type { ConformanceOptions, OptionalVerb, Skip, Store } from "./subject.ts";

/** The two functions of a test runner that the suite uses: those of vitest, jest, mocha and node:test fit. */
export interface Runner {
  readonly describe: (name: string, body: () => void) => unknown;
  /** Where it has `skip`, skipped tests are shown with their reason. */
  readonly test: ((name: string, body: () => Promise<void>) => unknown) & {
    readonly skip?: (name: string, body: () => Promise<void>) => unknown;
  };
}

const TOPICS: readonly (readonly [string, Topic])[] = [
  ["lifecycle", lifecycle],
  ["contention", contention],
  ["order", order],
  ["expiry", expiry],
  ["idempotence", idempotence],
  ["lost replies", lostReplies],
  ["many keys", manyKeys],
  ["permits", permits],
  ["tokens", tokens],
  ["list", listing],
  ["close", closing],
  ["detach", detaching],
  ["revoke", revoking],
  ["client: sessions", sessions],
  ["idle keys", idleKeys],
  ["against the lock table", againstTable],
  ["client: exclusion", exclusion],
  ["client: waiting", waiting],
  ["client: leases", leases],
  ["client: reentrancy", reentrancy],
  ["client: hand-off", handoffs],
  ["client: sharing", sharing],
  ["client: several keys", severalKeys],
  ["client: travel", travel],
  ["client: revoke", clientRevoking],
  ["client: close", clientClosing],
  ["client: tools", clientTools],
  ["client: storms", storms],
];

/**
 * Registers the tests of the contract for one driver. Every test opens a fresh store and checks at its end that nothing
 * is left in it.
 * @throws TypeError where options make no sense
 */
export function conformance<S extends Store>(
  { describe, test }: Runner,
  name: string,
  options: ConformanceOptions<S>,
): void {
  const subject = subjectOf(options);
  const skips = options.skip ?? [];
  const found = new Set<string>();
  const register = (title: string, topic: Topic, of: Subject): void => {
    const tests: (() => void)[] = [];
    topic((name, body) => {
      const skip = skips.find((one) => one.test === name);
      found.add(name);
      if (skip === undefined) tests.push(() => test(name, () => perform(of, body)));
      else tests.push(() => test.skip?.(`${name} (${skip.reason})`, async () => undefined));
    }, of);
    if (tests.length === 0) return; // runners do not like empty groups
    describe(title, () => {
      for (const add of tests) add();
    });
  };
  describe(`${name} conforms`, () => {
    for (const [title, topic] of TOPICS) register(title, topic, subject);
    const { openPaused } = subject;
    if (openPaused !== undefined) register("pauses", pauses, { ...subject, open: openPaused });
    if (skips.length === 0) return;
    test("every test to be skipped exists", async () => {
      assert.deepEqual(
        skips.map((skip) => skip.test).filter((title) => !found.has(title)),
        [],
      );
    });
  });
}
