/** Does a pair cost more when an open transaction keeps the database from removing what earlier pairs have deleted? */

import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { connect } from "../../src/index.ts";
import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { waitForIdle } from "../harness/machine.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { MARIADB_KIND, POSTGRES_KIND } from "../harness/sql-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread, quantile } from "../harness/stats.ts";

const COUNTS = IS_QUICK_RUN ? [1, 20] : [1, 100, 500, 1_000, 2_000];
/** A key for each: the versions of one are not those of the next one. */
const ROUNDS = IS_QUICK_RUN ? 1 : 3;
/** The pairs after a count of which the median is taken. */
const WINDOW = IS_QUICK_RUN ? 5 : 50;
const WARM_UP_PAIRS = IS_QUICK_RUN ? 5 : 500;
const BOUND = 3;

/** Opens a transaction that sees the database as it is now. It is never ended: the server is. */
type Pin = (address: string) => Promise<{ end(): Promise<void> }>;

const pinPostgres: Pin = async (connectionString) => {
  const client = new Client({ connectionString });
  await client.connect();
  await client.query("begin isolation level repeatable read; select count(*) from pg_class");
  return client;
};

const pinMariaDb: Pin = async (uri) => {
  const connection = await createConnection({ uri });
  await connection.query("start transaction with consistent snapshot");
  return connection;
};

export const growthPinned: readonly BenchCase[] = [
  createCase(POSTGRES_KIND, pinPostgres),
  createCase(MARIADB_KIND, pinMariaDb),
];

function createCase({ id, title, withStore }: SqlKind, pin: Pin): BenchCase {
  return {
    name: `growth-pinned-${id}`,
    title: `${title}, pairs of one free key beside an open transaction`,
    about:
      `The median of ${WINDOW} pairs after so many of one key, while a repeatable-read transaction stays open in another connection. Ratio: to ` +
      `another server without such a transaction, pair by pair in turns. Rounds are keys: ${ROUNDS}.`,
    run: () =>
      withStore(({ address: pinnedAddress }) =>
        withStore(async ({ address: controlAddress }) => {
          const [pinned, control] = [await connect(pinnedAddress), await connect(controlAddress)];
          const turns = [pinned, control].map((locks) => async (key: string): Promise<number> => {
            const startedAt = performance.now();
            await (await locks.acquire(key)).release();
            return 1_000 * (performance.now() - startedAt);
          }) as [(key: string) => Promise<number>, (key: string) => Promise<number>];
          for (let pair = 0; pair < WARM_UP_PAIRS; pair++) for (const turn of turns) await turn("warm-up");
          const transaction = await pin(pinnedAddress);
          const medians = COUNTS.map((): [number[], number[]] => [[], []]);
          for (let round = 0; round < ROUNDS; round++) {
            await waitForIdle();
            const times: [number[], number[]] = [[], []];
            for (let pair = 0; pair < (COUNTS.at(-1) as number) + WINDOW; pair++) {
              for (const [index, turn] of turns.entries()) times[index]?.push(await turn(`hot ${round}`));
            }
            for (const [step, count] of COUNTS.entries()) {
              for (const index of [0, 1] as const)
                medians[step]?.[index].push(quantile(times[index].slice(count, count + WINDOW), 0.5));
            }
          }
          await Promise.all([pinned.close(), control.close(), transaction.end()]);
          const rows = COUNTS.map((count, step): Row => {
            const [ours, theirs] = medians[step] as [number[], number[]];
            const figures = {
              "us/pair": computeSpread(ours),
              "us/pair, no transaction": computeSpread(theirs),
              ratio: computeRatio(ours, theirs),
            };
            return { name: `after ${count.toLocaleString("en-US")} pairs`, figures };
          });
          const last = rows.at(-1) as Row;
          const what = `${last.name}, of a pair without the transaction`;
          return { rows, checks: [check("goal", what, last.figures.ratio as Spread, "at most", BOUND)] };
        }),
      ),
  };
}
