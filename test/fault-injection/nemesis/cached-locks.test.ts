/**
 * Two faults at once strike processes that cache locks, on Redis with Sentinels. The judge is a register that refuses lower tokens.
 * After each repair every key must soon be in use again, although locks are cached for longer than the test waits: a recall or a
 * grant that nobody receives would stop a key. HOLDFAST_SEED repeats a plan.
 */

import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { createRandom } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import type { CachedUsers, UserSettings } from "../../support/processes/cached-users.ts";
import { startCachedUsers } from "../../support/processes/cached-users.ts";
import { mountNamespaceUnavailableReason } from "../../support/processes/mount-namespace.ts";
import { IS_LONG_RUN, test } from "../../support/processes/process-harness.ts";
import { SectionRegister } from "../../support/processes/section-register.ts";
import type { Pair, Target } from "./faults.ts";
import { faultPairs, pairIncludes, shuffleSchedule, strikeTogether } from "./faults.ts";
import { redisSentinelTarget } from "./redis-sentinel-target.ts";

const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);
const PROCESSES = 4;
const KEYS = ["a", "b", "c"] as const;

interface CachedLocksCase {
  readonly what: string;
  readonly ttl: UserSettings["ttl"];
  /** Whether a pair strikes. */
  isChosen(pair: Pair): boolean;
  readonly strikesPerPair: number;
  /**
   * From the repair to the next section of each key. What may pass: the lease of a process that was killed, 2 s until the client
   * connects again, 3 s until it has subscribed again, 1 s for the acknowledgement of the replica; a busy machine takes longer.
   */
  readonly progressMs: number;
  /** So many sections and changes of the owning process at least. */
  readonly sections: number;
  readonly ownerChanges: number;
}

const CASES: readonly CachedLocksCase[] = [
  {
    what: "all faults, leases of 2 s",
    ttl: "2s",
    // in the short form the other pairs strike the other case
    isChosen: (pair) => IS_LONG_RUN || pairIncludes(pair, ["kill"]),
    strikesPerPair: IS_LONG_RUN ? 10 : 1,
    progressMs: 20_000,
    sections: IS_LONG_RUN ? 1_000_000 : 500,
    ownerChanges: IS_LONG_RUN ? 20_000 : 50,
  },
  {
    // no process dies, so nobody waits for a lease; an answer to a renewal would be too late to replace a push
    what: "no process killed, leases of 90 s",
    ttl: "90s",
    isChosen: (pair) => !pairIncludes(pair, ["kill"]) && (IS_LONG_RUN || pairIncludes(pair, ["store-fail-over"])),
    strikesPerPair: IS_LONG_RUN ? 10 : 1,
    progressMs: 20_000,
    sections: 500,
    ownerChanges: 50,
  },
];

interface Outcome {
  readonly strikes: Map<string, number>;
  /** From each repair until every key was in use again, in ascending order. */
  readonly waits: number[];
}

async function runStrikes(
  target: Target,
  users: CachedUsers,
  register: SectionRegister,
  { isChosen, strikesPerPair, progressMs }: CachedLocksCase,
): Promise<Outcome> {
  const random = createRandom(SEED);
  const strikes = new Map<string, number>();
  const waits: number[] = [];
  const violations = (): string[] => [...register.violations, ...users.faults()];
  // the disks are large here, and never full; a server that is killed is like one that is restarted
  const faults = target.faults(users).filter(({ name }) => !["full disk", "store-kill"].includes(name));
  const pairs = faultPairs(faults).filter(isChosen);
  for (const pair of shuffleSchedule(pairs, strikesPerPair, random)) {
    const [one, other] = pair.map(({ name }) => name) as [string, string];
    await strikeTogether(target, pair, random);
    register.endExcuses();
    for (const fault of [one, other]) strikes.set(fault, (strikes.get(fault) ?? 0) + 1);
    const repairedAt = performance.now();
    for (const key of KEYS) {
      await until(() => register.lastEnteredAt(key) > repairedAt || violations().length > 0, {
        within: Math.max(progressMs - (performance.now() - repairedAt), 0),
        what: `a section of "${key}" after "${one}" and "${other}"`,
      });
    }
    waits.push(performance.now() - repairedAt);
    if (violations().length > 0) throw new Error(`"${one}", then "${other}": ${violations().join("; ")}`);
    await delay(random.int(500));
  }
  return { strikes, waits: waits.sort((left, right) => left - right) };
}

const skip = mountNamespaceUnavailableReason === null ? "" : `: ${mountNamespaceUnavailableReason}, skipped`;

for (const plan of CASES) {
  test
    .skipIf(skip !== "")
    .concurrent(
      `cached locks on Redis with Sentinels, ${plan.what}, seed ${SEED}: no two sections at once, tokens rise, all keys stay in use${skip}`,
      { timeout: 7_200_000 },
      async ({ harness }) => {
        const target = await redisSentinelTarget(harness, IS_LONG_RUN ? 2_048 : 64);
        const register = new SectionRegister(harness);
        const users = startCachedUsers(harness, PROCESSES, createRandom(SEED + 2), register, {
          url: target.clients.url,
          keys: KEYS,
          ttl: plan.ttl,
          cache: "300s",
          usersPerKey: 4,
          sectionsPerTurn: 500,
          pauseMs: 1_000,
        });
        try {
          const startedAt = performance.now();
          await until(() => KEYS.every((key) => register.lastEnteredAt(key) > 0), {
            within: 60_000,
            what: "the first sections",
          });
          const { strikes, waits } = await runStrikes(target, users, register, plan);
          await until(() => register.sections >= plan.sections && register.ownerChanges >= plan.ownerChanges, {
            within: 3_600_000,
            what: "all sections",
          });
          await users.finish();
          expect([...register.violations, ...users.faults()]).toEqual([]);
          await until(async () => (await harness.list(target.clients.url)).length === 0, {
            within: 10_000,
            what: "a store without claims",
          });
          console.log(
            `figure: cached locks, ${plan.what} (seed ${SEED}): ${waits.length} pairs of faults in ` +
              `${((performance.now() - startedAt) / 1_000).toFixed(0)} s, ${register.sections} sections, ` +
              `${register.ownerChanges} changes of the owner, ${register.refused} late requests of stopped processes refused; ` +
              `all keys in use again ${waits[Math.floor(waits.length / 2)]?.toFixed(0)} ms after a repair (median), ` +
              `${waits.at(-1)?.toFixed(0)} ms (longest); ` +
              [...strikes].map(([fault, count]) => `${count} x ${fault}`).join(", "),
          );
        } finally {
          users.stop();
          await target.close();
        }
      },
    );
}
