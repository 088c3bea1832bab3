/**
 * Five processes that campaign for one leadership, on every store that processes can share: once a second the leader is killed,
 * stopped past its lease, or asked to resign. The processes write down their terms by their own clocks; nothing else is trusted.
 */

import { setTimeout as delay } from "node:timers/promises";
import { expect, vi } from "vitest";
import type { Leader, Locks } from "../../src/index.ts";
import { until } from "../../src/testing/until.ts";
import type { Candidate } from "../support/processes/candidate.ts";
import { findFaults, findLeader, listTerms, startCandidate } from "../support/processes/candidate.ts";
import { connectStore, ELECTION } from "../support/processes/candidate-store.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { SHARED_STORES } from "../support/processes/shared-stores.ts";

const CANDIDATES = 5;
const DURATION_MS = IS_LONG_RUN ? 60_000 : 6_000;
const ACTIONS = ["kill", "stop", "kill", "resign"] as const;
const ACTION_EVERY_MS = 1_000;
const MIN_TERMS = 5;
/** A lease of a second, on a machine that is busy with other things. */
const NEXT_LEADER_MS = 15_000;

// the processes of all stores at once would not get the time to renew leases of a second
vi.setConfig({ maxConcurrency: 3, testTimeout: DURATION_MS + 90_000 });

/** Takes the leadership from the leader, and waits until another term has begun. */
async function disturb(action: (typeof ACTIONS)[number], candidates: readonly Candidate[]): Promise<Candidate> {
  const leader = await until(() => findLeader(candidates), { within: NEXT_LEADER_MS, what: "a leader" });
  const termsOf = (some: readonly Candidate[]): number => listTerms(some).length;
  const others = candidates.filter((candidate) => candidate !== leader);
  const [termsOfAll, termsOfOthers, termsOfLeader] = [termsOf(candidates), termsOf(others), termsOf([leader])];
  if (action === "kill") leader.kill();
  else leader.process.kill(action === "stop" ? "SIGSTOP" : "SIGUSR2");
  await until(() => (action === "resign" ? termsOf(candidates) > termsOfAll : termsOf(others) > termsOfOthers), {
    within: NEXT_LEADER_MS,
    what: `the next leader after a ${action}`,
  });
  if (action !== "stop") return leader;
  leader.process.kill("SIGCONT");
  const told = await until(() => listTerms([leader])[termsOfLeader - 1]?.told, {
    within: NEXT_LEADER_MS,
    what: "the stopped leader to learn of its loss",
  });
  expect(["expired", "unknown"]).toContain(told.reason);
  return leader;
}

/** What an observer sees; null for a store that does not show it. */
async function observe(
  locks: Locks,
): Promise<{ readonly seen: readonly Leader[]; readonly ended: Promise<void> } | null> {
  if (locks.traits?.list === "own") return null;
  const seen: Leader[] = [];
  const run = async (): Promise<void> => {
    for await (const leader of locks.leader(ELECTION).observe({ interval: "50ms" }))
      if (leader !== null) seen.push(leader);
  };
  return { seen, ended: run() };
}

test.concurrent.for(Object.entries(SHARED_STORES))(
  "on %s: leaders that are killed, stopped or resign follow one another without overlap, and tokens rise",
  async ([name, start], { harness }) => {
    const store = await start(harness);
    const locks = await connectStore(store.url);
    try {
      const candidates = Array.from({ length: CANDIDATES }, () => startCandidate(harness, store.url));
      const observer = await observe(locks);
      await until(() => findLeader(candidates), { within: 30_000, what: "the first leader" });
      const startedAt = performance.now();
      for (
        let round = 0;
        performance.now() - startedAt < DURATION_MS || listTerms(candidates).length < MIN_TERMS;
        round++
      ) {
        const action = ACTIONS[round % ACTIONS.length] as (typeof ACTIONS)[number];
        await disturb(action, candidates);
        expect((await store.findViolations?.()) ?? []).toEqual([]);
        if (action === "kill") candidates.push(startCandidate(harness, store.url));
        await delay(Math.max(startedAt + (round + 1) * ACTION_EVERY_MS - performance.now(), 0));
      }
      for (const candidate of candidates) candidate.kill();
      await Promise.all(candidates.map(({ ended }) => ended));
      const terms = listTerms(candidates);
      expect(findFaults(terms)).toEqual([]);
      expect(terms.length).toBeGreaterThanOrEqual(MIN_TERMS);
      await locks.close();
      await observer?.ended;
      const shown = terms.map(({ pid, token }) => ({ label: `candidate ${pid}`, token }));
      for (const leader of observer?.seen ?? []) expect(shown).toContainEqual(leader);
      console.log(
        `figure: ${terms.length} terms in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s on ${name}`,
      );
    } finally {
      await locks.close();
      await store.stop();
    }
  },
);
