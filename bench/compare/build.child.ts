// A client process of a comparison: loads one build of the package by its path and performs workloads with it.
// Everything the comparison uses of the public API is here and in builds.ts, so that a renamed option needs an adapter
// in two places at most: connect(url), acquire(key), release(), close().

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { serveCalls } from "../harness/child-rpc.ts";
import type { Measured } from "../harness/client.child.ts";
import type { LockImplementation, Workload } from "../harness/closed-loop.ts";
import { runWorkload } from "../harness/closed-loop.ts";
import { runTurns } from "../harness/workloads.ts";

interface PublicLock {
  release(): Promise<unknown>;
}

interface PublicLocks {
  acquire(key: string): Promise<PublicLock>;
  close(): Promise<void>;
}

interface PublicApi {
  connect(url: string): Promise<PublicLocks>;
}

/** A fixed number of pairs, so that what they cost can be counted. */
export interface FixedPairs {
  readonly callers: number;
  readonly keys: number;
  readonly times: number;
}

const PASSED_KEY = "bench:passed";
const [dist = "", url = "", clients = "1"] = process.argv.slice(2);
let implementation: Promise<LockImplementation<PublicLock>> | null = null;

/** With several clients, one acquire after the other goes to the next client. */
async function open(): Promise<LockImplementation<PublicLock>> {
  const { connect } = (await import(pathToFileURL(join(dist, "index.js")).href)) as PublicApi;
  const clientLocks = await Promise.all(Array.from({ length: Number(clients) }, () => connect(url)));
  let next = 0;
  return {
    acquire: (key) => (clientLocks[next++ % clientLocks.length] as PublicLocks).acquire(key),
    release: (lock) => lock.release(),
    close: async () => void (await Promise.all(clientLocks.map((locks) => locks.close()))),
  };
}

async function openOnce(): Promise<LockImplementation<PublicLock>> {
  implementation ??= open();
  return implementation;
}

/** The clients pass a lock to each other; `ms` is what the passing took, from the call of release to the grant. */
async function passOn(implementation: LockImplementation<PublicLock>, within: number): Promise<Measured> {
  const cpuBefore = process.cpuUsage();
  const endsAt = performance.now() + within;
  let [pairs, ms] = [0, 0];
  let lock = await implementation.acquire(PASSED_KEY);
  while (performance.now() < endsAt) {
    const granted = implementation.acquire(PASSED_KEY).then((next) => ({ next, at: performance.now() }));
    await delay(5 + 10 * Math.random());
    const releasedAt = performance.now();
    await implementation.release(lock);
    const { next, at } = await granted;
    ms += at - releasedAt;
    pairs++;
    lock = next;
  }
  await implementation.release(lock);
  const { user, system } = process.cpuUsage(cpuBefore);
  return { pairs, ms, cpu: user + system, grantsPerCaller: [pairs], p50: Number.NaN, p99: Number.NaN };
}

serveCalls({
  ready: async (): Promise<void> => void (await openOnce()),
  perform: async (workload: Workload): Promise<Measured> => {
    const { latencies: _, ...outcome } = await runWorkload(await openOnce(), workload);
    return { ...outcome, p50: Number.NaN, p99: Number.NaN };
  },
  handOffs: async ({ ms }: Workload): Promise<Measured> => passOn(await openOnce(), ms),
  turns: async ({ callers, keys, times }: FixedPairs): Promise<number> =>
    runTurns(await openOnce(), callers, times, keys),
});
