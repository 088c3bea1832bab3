/** How long it takes until a lock in a database passes from one process to the next. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { HAND_OFFS, handOffRows, measureHandOffs } from "../harness/hand-offs.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { listRivals, MARIADB_KIND, POSTGRES_KIND } from "../harness/sql-rounds.ts";
import { computeRatio } from "../harness/stats.ts";
import { NOTIFY_FLOOR } from "../implementations/sql.ts";

export const sqlHandOff: readonly BenchCase[] = [
  createCase(
    POSTGRES_KIND,
    NOTIFY_FLOOR,
    "The floor is two plain clients of pg: one statement that writes a row and notifies, and the notification as the grant.",
  ),
  createCase(
    MARIADB_KIND,
    null,
    "MariaDB cannot push: our waiter asks again, every 3 ms at first. GET_LOCK keeps a connection for each waiter.",
  ),
];

function createCase(kind: SqlKind, floor: string | null, remark: string): BenchCase {
  const { id, title, names } = kind;
  return {
    name: `sql-hand-off-${id}`,
    title: `${title}, hand-off from process A to the one waiter in process B`,
    about:
      "From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random. " +
      `Up to ${HAND_OFFS} in a round, fewer of those that take long. ${remark}`,
    headline: ["p50 us"],
    reasons: {
      "*": `${
        floor === null
          ? "MariaDB cannot push, so the waiter asks again."
          : "A release commits to the disk before it notifies."
      } A waiter of a lock by hand blocks a connection in the server, which tells it at once.`,
    },
    async run() {
      const implementations = [names.holdfast, ...(floor === null ? [] : [floor]), ...listRivals(names)];
      const rounds = await measureHandOffs(kind, implementations);
      const mediansOf = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
      const ratio = floor === null ? null : computeRatio(mediansOf(names.holdfast), mediansOf(floor));
      return {
        rows: handOffRows(rounds),
        checks: ratio === null ? [] : [check("goal", `p50 of ${NOTIFY_FLOOR}`, ratio, "at most", 2)],
      };
    },
  };
}
