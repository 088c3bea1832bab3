// A client process of a comparison: loads one build of the package by its path and performs workloads with it. Everything
// the comparison uses of the public API is here and in builds.ts, so that a renamed option needs an adapter in two places
// at most: connect(url), acquire(key), release(), close().

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { answerCalls } from "../harness/calls.ts";
import type { Measured } from "../harness/client.child.ts";
import { turns } from "../harness/turns.ts";
import type { Contestant, Workload } from "../harness/workload.ts";
import { perform } from "../harness/workload.ts";

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

const [dist = "", url = "", clients = "1"] = process.argv.slice(2);
let opened: Promise<Contestant<PublicLock>> | null = null;

/** With several clients, one acquire after the other goes to the next client. */
async function open(): Promise<Contestant<PublicLock>> {
  const { connect } = (await import(pathToFileURL(join(dist, "index.js")).href)) as PublicApi;
  const all = await Promise.all(Array.from({ length: Number(clients) }, () => connect(url)));
  let next = 0;
  return {
    acquire: (key) => (all[next++ % all.length] as PublicLocks).acquire(key),
    release: (lock) => lock.release(),
    close: async () => void (await Promise.all(all.map((locks) => locks.close()))),
  };
}

async function contestant(): Promise<Contestant<PublicLock>> {
  opened ??= open();
  return opened;
}

answerCalls({
  ready: async (): Promise<void> => void (await contestant()),
  perform: async (workload: Workload): Promise<Measured> => {
    const { latencies: _, ...outcome } = await perform(await contestant(), workload);
    return { ...outcome, p50: Number.NaN, p99: Number.NaN };
  },
  turns: async ({ callers, keys, times }: FixedPairs): Promise<number> =>
    turns(await contestant(), callers, times, keys),
});
