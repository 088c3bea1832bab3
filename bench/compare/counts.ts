/** Frames of the server's protocol, and commands of Redis, that a fixed number of pairs takes. */

import { setTimeout as delay } from "node:timers/promises";
import type { ChildProcessRpc } from "../harness/child-rpc.ts";
import { startCountingProxy } from "../harness/counting-proxy.ts";
import { splitLines } from "../harness/line-splitter.ts";
import { quantile } from "../harness/stats.ts";
import type { FixedPairs } from "./build.child.ts";
import type { Build, Store } from "./builds.ts";
import { urlOf, withClient, withStore } from "./builds.ts";
import type { Subject } from "./subjects.ts";

/** By what was counted: "sent", "received", or the name of a command; of all pairs of one run. */
export type Count = Readonly<Record<string, number>>;

export interface Counts {
  readonly pairs: number;
  readonly old: readonly Count[];
  readonly new: readonly Count[];
}

/** Of each build. */
const RUNS = 7;
const SETTLED_MS = 100;
const NEAR = 0.02;

/** Counts both builds in turns. */
export function countsOf(subject: Subject, old: Build, now: Build): Promise<Counts> {
  const { callers, keys, countedTimes: times } = subject;
  const run = { callers, keys, times };
  return withCounter(old, subject, (countOld) =>
    withCounter(now, subject, async (countNew) => {
      const counts = { pairs: callers * times, old: [] as Count[], new: [] as Count[] };
      // the first ones load scripts
      await countOld(run);
      await countNew(run);
      for (let n = 0; n < RUNS; n++) {
        counts.old.push(await countOld(run));
        counts.new.push(await countNew(run));
      }
      return counts;
    }),
  );
}

type Counter = (run: FixedPairs) => Promise<Count>;

function withCounter<T>(build: Build, subject: Subject, use: (count: Counter) => Promise<T>): Promise<T> {
  return withStore(build, subject, (store) =>
    store.socket === null ? withCommands(build, subject, store, use) : withFrames(build, subject, store.socket, use),
  );
}

async function withFrames<T>(
  build: Build,
  subject: Subject,
  socket: string,
  use: (count: Counter) => Promise<T>,
): Promise<T> {
  let [sent, received] = [0, 0];
  const proxy = await startCountingProxy(`${socket}.relay`, socket, {
    up: splitLines((line) => {
      sent += framesIn(line);
    }),
    down: splitLines((line) => {
      received += framesIn(line);
    }),
  });
  try {
    return await withClient(build, subject, urlOf(proxy.address), (client) =>
      use(counter(client, async () => ({ sent, received }))),
    );
  } finally {
    proxy.close();
  }
}

/** A line is an array of frames, which are arrays, after the server's start id; a hello is an object. */
function framesIn(line: string): number {
  const parts: unknown = JSON.parse(line);
  return Array.isArray(parts) ? parts.filter((part) => Array.isArray(part)).length : 0;
}

function withCommands<T>(
  build: Build,
  subject: Subject,
  { url, counting }: Store,
  use: (count: Counter) => Promise<T>,
): Promise<T> {
  const look = async (): Promise<Count> => {
    if (counting === null) throw new Error(`nothing to count: ${subject.name}`);
    const { calls } = await counting.work();
    // the observer's own
    return Object.fromEntries([...calls].filter(([name]) => name !== "info"));
  };
  return withClient(build, subject, url, (client) => use(counter(client, look)));
}

function counter(client: ChildProcessRpc, look: () => Promise<Count>): Counter {
  return async (run) => {
    const before = await look();
    await client.call("turns", run);
    return difference(before, await waitForStableCount(look));
  };
}

/** What answers the last pair may still be on its way. */
async function waitForStableCount(look: () => Promise<Count>): Promise<Count> {
  let last = await look();
  for (;;) {
    await delay(SETTLED_MS);
    const next = await look();
    if (JSON.stringify(next) === JSON.stringify(last)) return next;
    last = next;
  }
}

function difference(before: Count, after: Count): Count {
  const changes = Object.entries(after).map(([name, count]) => [name, count - (before[name] ?? 0)] as const);
  return Object.fromEntries(changes.filter(([, change]) => change !== 0).sort());
}

/** What was counted by any run, and of it the median of each build's runs per pair. */
export function perPair({ pairs, old, new: now }: Counts): { name: string; old: number; new: number }[] {
  const names = [...new Set([...old, ...now].flatMap((count) => Object.keys(count)))].sort();
  const median = (runs: readonly Count[], name: string): number =>
    quantile(
      runs.map((count) => count[name] ?? 0),
      0.5,
    ) / pairs;
  return names.map((name) => ({ name, old: median(old, name), new: median(now, name) }));
}

/**
 * Why the builds do not do the same; none if they do. What is the same whenever a build is run must be equal. What one
 * build does differently from run to run (batches and races go by time, sweeps by chance) is taken for the same if the
 * runs of the two overlap, or if their medians differ by at most 2 %.
 */
export function countFaults(counts: Counts, { exact, sampled }: Pick<Subject, "exact" | "sampled">): string[] {
  return perPair(counts).flatMap(({ name, old, new: now }) => {
    const [before, after] = [rangeOf(counts.old, name), rangeOf(counts.new, name)];
    const isEqual = before.least === after.least && before.most === after.most;
    const overlap = before.least <= after.most && after.least <= before.most;
    const isNear = Math.abs(now - old) <= NEAR * old;
    const matches = exact && !sampled.includes(name) ? isEqual : overlap || isNear;
    return matches ? [] : [`${name}: ${old} a pair before, ${now} now`];
  });
}

function rangeOf(runs: readonly Count[], name: string): { readonly least: number; readonly most: number } {
  const all = runs.map((count) => count[name] ?? 0);
  return { least: Math.min(...all), most: Math.max(...all) };
}
