/**
 * A rolling deploy: three candidates for one leadership and twenty workers, each with a client of its own, are replaced one after
 * another by close(). No two work at the same time under one lock, no lock is lost, and the next leader starts at once.
 */

import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { expect, vi } from "vitest";
import type { Locks } from "../../src/index.ts";
import { ClosedError } from "../../src/index.ts";
import { connectStore } from "../support/processes/candidate-store.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { SHARED_STORES } from "../support/processes/shared-stores.ts";

const DEPLOYS = IS_LONG_RUN ? 20 : 1;
const LEADERS = 3;
const WORKERS = 20;
const JOBS = 5;
/** What a leader finishes after it was told to stop. */
const LEADER_STEP_MS = 20;
const WORKER_STEP_MS = 10;

vi.setConfig({ maxConcurrency: 3, testTimeout: DEPLOYS * 20_000 + 90_000 });

/** The work that is going on, by what it needs a lock for. */
class Work {
  readonly #current = new Map<string, number>();
  overlaps = 0;
  done = 0;
  leaderEndedAt: number | null = null;
  /** From the end of one leader's work to the begin of the next one's. */
  readonly gapsMs: number[] = [];

  async run(name: string, work: () => Promise<unknown>): Promise<void> {
    const running = this.#current.get(name) ?? 0;
    if (running > 0) this.overlaps++;
    this.#current.set(name, running + 1);
    await work();
    this.#current.set(name, (this.#current.get(name) as number) - 1);
    this.done++;
  }
}

/** Settles when a request of the client has its place in a queue. */
function whenAsked(locks: Locks): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ["waiting", "acquired"] as const) locks.on(event, () => resolve());
  });
}

/** One process of the deployment: here a client with connections of its own. */
interface Pod {
  readonly locks: Locks;
  /** Settles with its code; rejects with anything but the end of the client. */
  readonly ended: Promise<void>;
}

async function startLeader(url: string, work: Work): Promise<Pod> {
  const locks = await connectStore(url);
  const lead = async (): Promise<void> => {
    for await (const term of locks.leader("leader")) {
      if (work.leaderEndedAt !== null) work.gapsMs.push(performance.now() - work.leaderEndedAt);
      await work.run("leader", async () => {
        if (!term.signal.aborted) await once(term.signal, "abort");
        expect(term.signal.reason).toMatchObject({ reason: "released" });
        await delay(LEADER_STEP_MS);
      });
      work.leaderEndedAt = performance.now();
    }
  };
  const asked = whenAsked(locks);
  const ended = lead();
  await Promise.race([asked, ended]);
  return { locks, ended };
}

async function startWorker(url: string, index: number, work: Work): Promise<Pod> {
  const locks = await connectStore(url);
  const run = async (): Promise<void> => {
    try {
      for (let step = index; ; step++) {
        const job = `job ${step % JOBS}`;
        await locks.using(job, () => work.run(job, () => delay(WORKER_STEP_MS)));
      }
    } catch (error) {
      if (!(error instanceof ClosedError)) throw error;
    }
  };
  const asked = whenAsked(locks);
  const ended = run();
  await Promise.race([asked, ended]);
  return { locks, ended };
}

test.concurrent.for(Object.entries(SHARED_STORES))(
  "a rolling deploy on %s: close() lets running work end, and nothing overlaps",
  async ([name, start], { harness }) => {
    const store = await start(harness);
    const work = new Work();
    const starts = Array.from({ length: LEADERS + WORKERS }, (_, index) => (): Promise<Pod> => {
      return index < LEADERS ? startLeader(store.url, work) : startWorker(store.url, index, work);
    });
    const pods: Pod[] = [];
    try {
      for (const startPod of starts) pods.push(await startPod());
      for (let deploy = 0; deploy < DEPLOYS; deploy++) {
        for (const [index, startPod] of starts.entries()) {
          const old = pods[index] as Pod;
          pods[index] = await startPod();
          await old.locks.close();
          await old.ended;
        }
      }
      await Promise.all(pods.map(({ locks }) => locks.close()));
      await Promise.all(pods.map(({ ended }) => ended));
      expect(work.overlaps).toBe(0);
      expect(work.gapsMs.length).toBeGreaterThanOrEqual(DEPLOYS);
      const gapsMs = work.gapsMs.sort((a, b) => a - b);
      const [median, longest] = [gapsMs[gapsMs.length >> 1] as number, gapsMs.at(-1) as number];
      console.log(
        `figure: ${DEPLOYS} deploys, ${work.done} pieces of work, without a leader for ${median.toFixed(1)} ms in the median and ${longest.toFixed(1)} ms at most on ${name}`,
      );
    } finally {
      await Promise.all(pods.map(({ locks }) => locks.close({ drain: 0 })));
      await Promise.allSettled(pods.map(({ ended }) => ended));
      await store.stop();
    }
  },
);
