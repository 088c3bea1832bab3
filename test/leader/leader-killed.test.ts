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
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { inspectDocuments } from "../support/stores/document-inspector.ts";
import type { StoreKind } from "../support/stores/document-servers.ts";
import { startDocumentServer } from "../support/stores/document-servers.ts";
import { AWS_ENVIRONMENT } from "../support/stores/document-stores.ts";
import { startEtcd } from "../support/stores/etcd.ts";
import { startMariaDb } from "../support/stores/mariadb.ts";
import { startPostgres } from "../support/stores/postgres.ts";
import { startRedis } from "../support/stores/redis.ts";
import type { DatabaseServer } from "../support/stores/sql-database.ts";
import { startZooKeeper } from "../support/stores/zookeeper.ts";

const CANDIDATES = 5;
const DURATION_MS = IS_LONG_RUN ? 60_000 : 6_000;
const ACTIONS = ["kill", "stop", "kill", "resign"] as const;
const ACTION_EVERY_MS = 1_000;
const MIN_TERMS = 5;
/** A lease of a second, on a machine that is busy with other things. */
const NEXT_LEADER_MS = 15_000;

// the processes of all stores at once would not get the time to renew leases of a second
vi.setConfig({ maxConcurrency: 3, testTimeout: DURATION_MS + 90_000 });

interface Store {
  readonly url: string;
  /** What is wrong in its own state. */
  findViolations?(): Promise<readonly string[]>;
  stop(): Promise<void>;
}

type StartStore = (harness: ProcessHarness) => Promise<Store>;

async function useDatabase(server: DatabaseServer, toUrl: (url: string) => string): Promise<Store> {
  const { url } = await server.freshDatabase();
  return { url: toUrl(url), stop: () => server.dispose() };
}

async function useDocuments(kind: StoreKind): Promise<Store> {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  const server = await startDocumentServer(kind);
  const address = await server.create();
  const inspector = await inspectDocuments(address);
  return {
    url: JSON.stringify(address),
    findViolations: () => inspector.findViolations(),
    async stop() {
      await inspector.close();
      await server.dispose();
    },
  };
}

const advisory = (url: string): string => `${url.replace("://", "+advisory://")}?sessionMs=2000`;

const STORES: Readonly<Record<string, StartStore>> = {
  "the server": async (harness) => {
    const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
    return { url, stop: async () => undefined };
  },
  Redis: async () => startRedis(),
  "a quorum of Redis servers": async () => {
    const servers = [await startRedis(), await startRedis(), await startRedis()];
    return {
      url: `quorum:${servers.map(({ url }) => url).join(",")}`,
      stop: async () => void (await Promise.all(servers.map((server) => server.stop()))),
    };
  },
  ZooKeeper: async () => {
    const server = await startZooKeeper();
    const { host, port } = server.address;
    return { url: `zookeeper://${host}:${port}?sessionMs=1000`, stop: () => server[Symbol.asyncDispose]() };
  },
  etcd: async () => {
    const server = await startEtcd();
    const { host, port } = server.address;
    return { url: `etcd://${host}:${port}`, stop: () => server[Symbol.asyncDispose]() };
  },
  PostgreSQL: async () => useDatabase(await startPostgres(), (url) => url),
  MariaDB: async () => useDatabase(await startMariaDb(), (url) => url),
  SQLite: async (harness) => ({ url: `sqlite:${harness.path("locks.db")}`, stop: async () => undefined }),
  NATS: () => useDocuments("nats"),
  DynamoDB: () => useDocuments("dynamodb"),
  S3: () => useDocuments("s3"),
  "advisory locks of PostgreSQL": async () => useDatabase(await startPostgres(), advisory),
  "advisory locks of MariaDB": async () => useDatabase(await startMariaDb(), advisory),
};

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

test.concurrent.for(Object.entries(STORES))(
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
