/** How long it takes until a lock passes from one process to the next. */

import { setTimeout as delay } from "node:timers/promises";
import type { Row } from "./bench-case.ts";
import type { ChildProcessRpc } from "./child-rpc.ts";
import { IS_QUICK_RUN } from "./quick-run.ts";
import { runRounds } from "./run-rounds.ts";
import { computeSpread, quantile } from "./stats.ts";
import type { StoreKind, StoreProcessGroup } from "./store-rounds.ts";
import { withStoreGroups } from "./store-rounds.ts";

/** Of a round; an implementation that hands over a few times a second is not waited for. */
const ROUND_MS = IS_QUICK_RUN ? 300 : 600;
/** The most of a round. */
export const HAND_OFFS = 30;

export interface HandOffFigures {
  readonly p50: number[];
  readonly p99: number[];
  count: number;
}

/** Rounds of hand-offs between two processes of each implementation. */
export async function measureHandOffs(
  { withStore }: Pick<StoreKind, "withStore">,
  names: readonly string[],
  counted?: number,
): Promise<ReadonlyMap<string, HandOffFigures>> {
  const rounds = new Map<string, HandOffFigures>(names.map((name) => [name, { p50: [], p99: [], count: 0 }]));
  await withStore((server) =>
    withStoreGroups(names, 2, server, (groups) =>
      runRounds(groups, { counted }, async (group, isCounted) => {
        const gaps = await measureGaps(group);
        const handOffFigures = rounds.get(group.name);
        if (!isCounted || handOffFigures === undefined) return;
        handOffFigures.p50.push(quantile(gaps, 0.5));
        handOffFigures.p99.push(quantile(gaps, 0.99));
        handOffFigures.count += gaps.length;
      }),
    ),
  );
  return rounds;
}

export function handOffRows(rounds: ReadonlyMap<string, HandOffFigures>): Row[] {
  return [...rounds].map(([name, { p50, p99, count }]) => ({
    name,
    figures: { "p50 us": computeSpread(p50), "p99 us": computeSpread(p99), "hand-offs": computeSpread([count]) },
  }));
}

/** Microseconds each hand-off took, the two taking turns. */
async function measureGaps({ name, clients }: StoreProcessGroup): Promise<number[]> {
  const key = `handed:${name}`;
  let [from, to] = clients as [ChildProcessRpc, ChildProcessRpc];
  const all: number[] = [];
  for (const client of clients) await client.call("ready");
  await from.call("take", key);
  const endsAt = performance.now() + ROUND_MS;
  while (all.length < HAND_OFFS && performance.now() < endsAt) {
    const granted = to.call<number>("take", key);
    await delay(5 + 10 * Math.random());
    const releasedAt = await from.call<number>("give");
    all.push((await granted) - releasedAt);
    [from, to] = [to, from];
  }
  await from.call("give");
  return all;
}
