/** Holdfast on databases against the floor and the rivals, without contention. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { listRivals, MARIADB_KIND, measureOnDatabase, POSTGRES_KIND, SQLITE_KIND } from "../harness/sql-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio } from "../harness/stats.ts";
import type { Column } from "../harness/store-rounds.ts";
import { grantRates, storeRow } from "../harness/store-rounds.ts";

/** V8 compiles during the first 2,500 pairs. */
const WARM_UP_MS = 4_000;
const COLUMNS: readonly Column[] = ["rate", "p50", "p99", "commands", "clientCpu", "serverCpu"];
const ADVISORY_REASON =
  "The statements are those of the pair by hand; the difference is CPU of the client, which also keeps a lease by two clocks, a queue " +
  "and events.";

export const sqlUncontended: readonly BenchCase[] = [POSTGRES_KIND, MARIADB_KIND, SQLITE_KIND].map(createCase);

function createCase(kind: SqlKind): BenchCase {
  const { id, title, names } = kind;
  return {
    name: `sql-uncontended-${id}`,
    title: `${title}, one caller, uncontended`,
    about:
      "One caller, one key, in a loop; a pair is timed whole. Each commit is synced to the disk, as the database does by " +
      "default. The floor is one statement that inserts a row and one that deletes it, with the same client. A lock by hand that ends with " +
      `its connection writes nothing to the disk. Each has run for ${WARM_UP_MS / 1_000} s before it is measured.`,
    headline: ["grants/s"],
    reasons: {
      [names.holdfast]:
        "A claim and a release are transactions that commit to the disk and keep a queue, tokens and tombstones; a lock by hand that " +
        "ends with its connection writes nothing.",
      ...(names.advisory === null ? {} : { [names.advisory.holdfast]: ADVISORY_REASON }),
      "*": "A claim and a release are calls of functions or procedures with a transaction and a reply; the floor is two bare statements.",
    },
    async run() {
      const { holdfast, floor, advisory } = names;
      const advisoryNames = advisory === null ? [] : [advisory.holdfast];
      const implementations = [holdfast, floor, ...advisoryNames, ...listRivals(names)];
      const load = { callers: 1, keys: 1, timed: "pair" } as const;
      const rounds = await measureOnDatabase(kind, implementations, {
        processes: 1,
        load,
        ms: 300,
        warmUpMs: WARM_UP_MS,
        rounds: 9,
      });
      const ratioOf = (name: string, other: string): Spread =>
        computeRatio(grantRates(rounds(name)), grantRates(rounds(other)));
      return {
        rows: implementations.map((name) => storeRow(name, rounds, COLUMNS)),
        checks: [
          check("goal", "rate of the floor", ratioOf(holdfast, floor), "at least", 0.7),
          ...(advisory === null
            ? []
            : [
                check(
                  "goal",
                  `${advisory.holdfast}: rate of ${advisory.byHand}`,
                  ratioOf(advisory.holdfast, advisory.byHand),
                  "at least",
                  0.9,
                ),
              ]),
        ],
      };
    },
  };
}
