/** Two processes that take turns with a lock, each when the other one has finished. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchStore, StoreWork } from "./bench-store.ts";
import { callsBetween } from "./bench-store.ts";
import type { ChildProcessRpc } from "./child-rpc.ts";
import { IS_QUICK_RUN } from "./quick-run.ts";
import { runRounds } from "./run-rounds.ts";
import { quantile, sum } from "./stats.ts";
import type { StoreKind, StoreProcessGroup } from "./store-rounds.ts";
import { withStoreGroups } from "./store-rounds.ts";

/** Of a round. */
export const TURNS: number = IS_QUICK_RUN ? 12 : 120;
/** So many times as many make the first round, which is not counted: V8 compiles for about a thousand pairs. */
const WARM_UP_FACTOR = IS_QUICK_RUN ? 1 : 8;

export interface TurnFigures {
  /** Microseconds, round by round. */
  readonly p50: number[];
  readonly mean: number[];
  readonly longest: number[];
  /** Commands that both sent for a turn; NaN if they are not counted. */
  readonly commands: number[];
}

/** What is done with a key, by both in turns or by one after the other. Returns the microseconds that count. */
type Exercise = (clients: readonly [ChildProcessRpc, ChildProcessRpc], key: string, turn: number) => Promise<number>;

/** Acquires and releases, the two in turns. */
export const takeTurns: Exercise = (clients, key, turn) =>
  (clients[turn % 2] as ChildProcessRpc).call<number>("turn", key);

/** The first one uses the lock; a while later the second one waits for it. */
export const waitBehind: Exercise = async ([first, second], key) => {
  await first.call("turn", key);
  await delay(5 + 10 * Math.random());
  const micros = await second.call<number>("wait", key);
  await second.call("give");
  return micros;
};

export interface ExerciseOptions {
  readonly exercise: Exercise;
  readonly turns: number;
  /** The key of a turn; every round has keys of its own. */
  readonly keyOf: (turn: number) => string;
  /** Whether a turn counts. */
  readonly isCounted: (turn: number) => boolean;
}

export async function measureTurns(
  kind: StoreKind,
  names: readonly string[],
  options: (name: string) => ExerciseOptions,
  implementationOf: (name: string) => string = (name) => name,
): Promise<ReadonlyMap<string, TurnFigures>> {
  const all = new Map<string, TurnFigures>(
    names.map((name) => [name, { p50: [], mean: [], longest: [], commands: [] }]),
  );
  const implementations = [...new Set(names.map(implementationOf))];
  await kind.withStore((store) =>
    withStoreGroups(implementations, 2, store, async (groups) => {
      const groupsByName = names.map((name) => ({
        name,
        group: groups.find((group) => group.name === implementationOf(name)) as StoreProcessGroup,
      }));
      let round = 0;
      await runRounds(groupsByName, {}, async ({ name, group }, isCounted) => {
        round++;
        const sends = kind.countedCommands(group.name);
        const exercise = options(name);
        const turns = exercise.turns * (isCounted ? 1 : WARM_UP_FACTOR);
        const { times, commands } = await runTurns(group, store, sends, `${name}:${round}:`, { ...exercise, turns });
        const figures = all.get(name);
        if (!isCounted || figures === undefined) return;
        figures.p50.push(quantile(times, 0.5));
        figures.mean.push(sum(times) / times.length);
        figures.longest.push(Math.max(...times));
        figures.commands.push(commands);
      });
    }),
  );
  return all;
}

async function runTurns(
  { clients }: StoreProcessGroup,
  store: BenchStore,
  sends: readonly string[] | undefined,
  prefix: string,
  { exercise, turns, keyOf, isCounted }: ExerciseOptions,
): Promise<{ readonly times: readonly number[]; readonly commands: number }> {
  const pair = clients as [ChildProcessRpc, ChildProcessRpc];
  for (const client of clients) await client.call("ready");
  const before: StoreWork = await store.work();
  const times: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const micros = await exercise(pair, prefix + keyOf(turn), turn);
    if (isCounted(turn)) times.push(micros);
  }
  const after = await store.work();
  return { times, commands: sends === undefined ? Number.NaN : callsBetween(before, after, sends) / turns };
}
