/** Many locks at once: what holding them costs, and whether a grant gets dearer. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { MemoryInUse } from "../harness/child-rpc.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { startCountingProxy } from "../harness/counting-proxy.ts";
import { waitForIdle } from "../harness/machine.ts";
import { withProcessGroup } from "../harness/process-groups.ts";
import { RawClient } from "../harness/raw-client.ts";
import { CLIENT_PROGRAM } from "../harness/rounds.ts";
import { computeSpread, quantile } from "../harness/stats.ts";

const HOLDFAST = "holdfast";
const HELD_COUNTS = 100_000;
/** Held before, so that code is compiled and tables have grown. */
const WARM_UP_COUNT = 1_000;
/** Two times the usual lease: six rounds of renewals. */
const WINDOW_MS = 60_000;
/** A third of the usual lease. */
const TICK_MS = 10_000;
const MICROS = 1_000;

export const heldLocks: BenchCase = {
  name: "held",
  title: `${HELD_COUNTS.toLocaleString("en-US")} held locks of one client, on TCP`,
  about:
    "Each with the usual lease of 30 s, watched for a minute: CPU of one core on either side, frames that renew per tick of " +
    "10 s, and what the server keeps for each lock after a full collection.",
  headline: ["CPU %"],
  async run() {
    return withProcessGroup(
      HOLDFAST,
      { processes: 0, tcp: true, nodeOptions: ["--expose-gc"] },
      async ({ server, address }) => {
        const proxy = await startCountingProxy("tcp", address);
        const client = new ChildProcessRpc(CLIENT_PROGRAM, [HOLDFAST, proxy.address]);
        try {
          await client.call("hold", { from: 0, count: WARM_UP_COUNT });
          const before = await server.call<MemoryInUse>("memory");
          await client.call("hold", { from: WARM_UP_COUNT, count: HELD_COUNTS });
          const after = await server.call<MemoryInUse>("memory");
          const cpuBefore = [await client.cpuMicros(), await server.cpuMicros()];
          const { renewals } = proxy.counts();
          await delay(WINDOW_MS);
          const shares = [await client.cpuMicros(), await server.cpuMicros()].map(
            (cpu, index) => (100 * (cpu - (cpuBefore[index] as number))) / (WINDOW_MS * MICROS),
          );
          const frames = (proxy.counts().renewals - renewals) / (WINDOW_MS / TICK_MS);
          const bytes = (after.heap - before.heap) / HELD_COUNTS;
          const [clientShare = 0, serverShare = 0] = shares;
          const figures = {
            "CPU %": computeSpread([clientShare + serverShare]),
            "client CPU %": computeSpread([clientShare]),
            "server CPU %": computeSpread([serverShare]),
            "renew frames a tick": computeSpread([frames]),
            "server bytes a lock": computeSpread([bytes]),
            "server resident bytes a lock": computeSpread([(after.resident - before.resident) / HELD_COUNTS]),
          };
          return {
            rows: [{ name: HOLDFAST, figures }],
            checks: [
              check("gate", "renew frames", computeSpread([frames]), "at least", 1),
              check(
                "gate",
                "renew frames a tick",
                computeSpread([frames]),
                "at most",
                (WARM_UP_COUNT + HELD_COUNTS) / 500 + 1,
              ),
              check("goal", "client CPU, % of a core", figures["client CPU %"], "at most", 5),
              check("goal", "server CPU, % of a core", figures["server CPU %"], "at most", 5),
              check("goal", "server bytes a lock", computeSpread([bytes]), "at most", 1_024),
            ],
          };
        } finally {
          await client.end();
          proxy.close();
        }
      },
    );
  },
};

const GRANTS = 2_000;
const ROUNDS = 5;
const WAITERS = [1, 10, 100, 1_000, 10_000];
const KEYS = [1, 100, 10_000, 100_000, 1_000_000];
/** Nothing is renewed meanwhile; a longer one would be written to the disk. */
const TTL_MS = 60_000;

export const constantCost: BenchCase = {
  name: "flat",
  title: "What one grant costs with many waiters, and with many keys held",
  about:
    `Server CPU a pair, one after another, each over the protocol on TCP (median of ${ROUNDS} times ${GRANTS} grants). ` +
    "Waiting: a caller that has released joins the end of the queue, so it keeps its length. Keys: one more key is " +
    "locked and released while that many are held.",
  headline: ["server CPU us/pair"],
  async run() {
    const waiting = await measureSeries(WAITERS, prepareQueue);
    const keys = await measureSeries(KEYS, prepareKeys);
    const rows: Row[] = [...toRows("waiting", waiting), ...toRows("keys held", keys)];
    return {
      rows,
      checks: [
        check("goal", "10,000 waiting against 10", costRatio(waiting, 10_000, 10), "at most", 1.5),
        check("goal", "1,000,000 keys against 100", costRatio(keys, 1_000_000, 100), "at most", 1.5),
      ],
    };
  },
};

type SeriesPoints = readonly (readonly [count: number, micros: number])[];
type SeriesStep = (rawClient: RawClient) => Promise<void>;

async function measureSeries(
  counts: readonly number[],
  prepare: (rawClient: RawClient, count: number) => Promise<SeriesStep>,
): Promise<SeriesPoints> {
  const points: (readonly [number, number])[] = [];
  for (const count of counts) {
    const micros = await withProcessGroup(HOLDFAST, { processes: 0, tcp: true }, async ({ server, address }) => {
      const rawClient = await RawClient.open(address, TTL_MS);
      const step = await prepare(rawClient, count);
      const rounds: number[] = [];
      for (let round = -1; round < ROUNDS; round++) {
        await waitForIdle();
        const before = await server.cpuMicros();
        for (let grant = 0; grant < GRANTS; grant++) await step(rawClient);
        if (round >= 0) rounds.push(((await server.cpuMicros()) - before) / GRANTS);
      }
      rawClient.close();
      return quantile(rounds, 0.5);
    });
    points.push([count, micros]);
  }
  return points;
}

async function prepareQueue(rawClient: RawClient, count: number): Promise<SeriesStep> {
  const line = await rawClient.claim(Array.from({ length: count + 1 }, () => "line"));
  let front = 0;
  return async () => {
    const leaving = line[front] as { readonly id: string };
    delete line[front++];
    await rawClient.release(leaving.id);
    await line[front]?.granted;
    line.push(...(await rawClient.claim(["line"])));
  };
}

async function prepareKeys(rawClient: RawClient, count: number): Promise<SeriesStep> {
  await rawClient.claim(Array.from({ length: count }, (_, n) => `held:${n}`));
  let turn = 0;
  return async () => {
    const [one] = await rawClient.claim([`one:${turn++}`]);
    await one?.granted;
    await rawClient.release(one?.id ?? "");
  };
}

function toRows(description: string, points: SeriesPoints): Row[] {
  return points.map(([count, micros]) => ({
    name: `${count.toLocaleString("en-US")} ${description}`,
    figures: { "server CPU us/pair": computeSpread([micros]) },
  }));
}

function costRatio(points: SeriesPoints, highCount: number, lowCount: number): ReturnType<typeof computeSpread> {
  const valueAt = (count: number): number => points.find(([pointCount]) => pointCount === count)?.[1] ?? Number.NaN;
  return computeSpread([valueAt(highCount) / valueAt(lowCount)]);
}
