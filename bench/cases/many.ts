/** Many locks at once: what holding them costs, and whether a grant gets dearer. */

import { setTimeout as delay } from "node:timers/promises";
import type { MemoryInUse } from "../harness/calls.ts";
import { Child } from "../harness/calls.ts";
import type { BenchCase, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { withCrew } from "../harness/crews.ts";
import { quiet } from "../harness/machine.ts";
import { relay } from "../harness/relay.ts";
import { clientProgram } from "../harness/rounds.ts";
import { Speaker } from "../harness/speaker.ts";
import { quantile, spreadOf } from "../harness/stats.ts";

const OURS = "holdfast";
const HELD = 100_000;
/** Held before, so that code is compiled and tables have grown. */
const WARM = 1_000;
/** Two times the usual lease: six rounds of renewals. */
const WINDOW_MS = 60_000;
/** A third of the usual lease. */
const TICK_MS = 10_000;
const MICROS = 1_000;

export const held: BenchCase = {
  name: "held",
  title: `${HELD.toLocaleString("en-US")} held locks of one client, on TCP`,
  about:
    "Each with the usual lease of 30 s, watched for a minute: CPU of one core on either side, frames that renew per tick of " +
    "10 s, and what the server keeps for each lock after a full collection.",
  async run() {
    return withCrew(OURS, { processes: 0, tcp: true, nodeOptions: ["--expose-gc"] }, async ({ server, address }) => {
      const between = await relay("tcp", address);
      const client = new Child(clientProgram, [OURS, between.address]);
      try {
        await client.call("hold", { from: 0, count: WARM });
        const before = await server.call<MemoryInUse>("memory");
        await client.call("hold", { from: WARM, count: HELD });
        const after = await server.call<MemoryInUse>("memory");
        const cpuBefore = [await client.cpu(), await server.cpu()];
        const { renewals } = between.counts();
        await delay(WINDOW_MS);
        const shares = [await client.cpu(), await server.cpu()].map(
          (cpu, at) => (100 * (cpu - (cpuBefore[at] as number))) / (WINDOW_MS * MICROS),
        );
        const frames = (between.counts().renewals - renewals) / (WINDOW_MS / TICK_MS);
        const bytes = (after.heap - before.heap) / HELD;
        const figures = {
          "client CPU %": spreadOf([shares[0] as number]),
          "server CPU %": spreadOf([shares[1] as number]),
          "renew frames a tick": spreadOf([frames]),
          "server bytes a lock": spreadOf([bytes]),
          "server resident bytes a lock": spreadOf([(after.resident - before.resident) / HELD]),
        };
        return {
          rows: [{ contestant: OURS, figures }],
          checks: [
            check("gate", "renew frames", spreadOf([frames]), "at least", 1),
            check("gate", "renew frames a tick", spreadOf([frames]), "at most", (WARM + HELD) / 500 + 1),
            check("goal", "client CPU, % of a core", figures["client CPU %"], "at most", 5),
            check("goal", "server CPU, % of a core", figures["server CPU %"], "at most", 5),
            check("goal", "server bytes a lock", spreadOf([bytes]), "at most", 1_024),
          ],
        };
      } finally {
        await client.end();
        between.close();
      }
    });
  },
};

const GRANTS = 2_000;
const ROUNDS = 5;
const WAITERS = [1, 10, 100, 1_000, 10_000];
const KEYS = [1, 100, 10_000, 100_000, 1_000_000];
/** Nothing is renewed meanwhile; a longer one would be written to the disk. */
const TTL_MS = 60_000;

export const flat: BenchCase = {
  name: "flat",
  title: "What one grant costs with many waiters, and with many keys held",
  about:
    `Server CPU a pair, one after another, each over the protocol on TCP (median of ${ROUNDS} times ${GRANTS} grants). ` +
    "Waiting: whoever has released stands at the end of the line again, so it keeps its length. Keys: one more key is " +
    "locked and released while that many are held.",
  async run() {
    const waiting = await series(WAITERS, inLine);
    const keys = await series(KEYS, amongKeys);
    const rows: Row[] = [...rowsOf("waiting", waiting), ...rowsOf("keys held", keys)];
    return {
      rows,
      checks: [
        check("goal", "10,000 waiting against 10", ratio(waiting, 10_000, 10), "at most", 1.5),
        check("goal", "1,000,000 keys against 100", ratio(keys, 1_000_000, 100), "at most", 1.5),
      ],
      plot: {
        name: "grant-cost",
        title: "Server CPU of one grant and its release",
        x: "how many (waiters on the key; keys held)",
        y: "microseconds",
        series: [
          { name: "waiting", points: waiting },
          { name: "keys held", points: keys },
        ],
      },
    };
  },
};

type Points = readonly (readonly [count: number, micros: number])[];
type Step = (speaker: Speaker) => Promise<void>;

async function series(
  counts: readonly number[],
  prepare: (speaker: Speaker, count: number) => Promise<Step>,
): Promise<Points> {
  const points: (readonly [number, number])[] = [];
  for (const count of counts) {
    const micros = await withCrew(OURS, { processes: 0, tcp: true }, async ({ server, address }) => {
      const speaker = await Speaker.open(address, TTL_MS);
      const step = await prepare(speaker, count);
      const rounds: number[] = [];
      for (let round = -1; round < ROUNDS; round++) {
        await quiet();
        const before = await server.cpu();
        for (let grant = 0; grant < GRANTS; grant++) await step(speaker);
        if (round >= 0) rounds.push(((await server.cpu()) - before) / GRANTS);
      }
      speaker.close();
      return quantile(rounds, 0.5);
    });
    points.push([count, micros]);
  }
  return points;
}

async function inLine(speaker: Speaker, count: number): Promise<Step> {
  const line = await speaker.claim(Array.from({ length: count + 1 }, () => "line"));
  let front = 0;
  return async () => {
    const leaving = line[front] as { readonly id: string };
    delete line[front++];
    await speaker.release(leaving.id);
    await line[front]?.granted;
    line.push(...(await speaker.claim(["line"])));
  };
}

async function amongKeys(speaker: Speaker, count: number): Promise<Step> {
  await speaker.claim(Array.from({ length: count }, (_, n) => `held:${n}`));
  let turn = 0;
  return async () => {
    const [one] = await speaker.claim([`one:${turn++}`]);
    await one?.granted;
    await speaker.release(one?.id ?? "");
  };
}

function rowsOf(what: string, points: Points): Row[] {
  return points.map(([count, micros]) => ({
    contestant: `${count.toLocaleString("en-US")} ${what}`,
    figures: { "server CPU us/pair": spreadOf([micros]) },
  }));
}

function ratio(points: Points, many: number, few: number): ReturnType<typeof spreadOf> {
  const of = (count: number): number => points.find(([one]) => one === count)?.[1] ?? Number.NaN;
  return spreadOf([of(many) / of(few)]);
}
