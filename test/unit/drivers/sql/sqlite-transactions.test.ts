/** The order in which calls of a process run on SQLite. */

import Database from "libsql";
import { expect, test } from "vitest";
import type { CallKind } from "../../../../src/drivers/sql/bucket-turns.ts";
import { adaptSqliteDatabase } from "../../../../src/drivers/sql/clients/sqlite.ts";
import { Transactions } from "../../../../src/drivers/sql/sqlite/transactions.ts";
import { systemClock } from "../../../../src/util/clock.ts";

/** Longer than calls join a transaction: each call has one of its own. */
const LONG_CALL_MS = 10;

async function runAll(kinds: readonly CallKind[], callMs: number): Promise<string[]> {
  const database = adaptSqliteDatabase(new Database(":memory:"));
  const transactions = new Transactions(database, {
    clock: systemClock,
    timeoutMs: 5_000,
    isOwned: true,
    verify: () => undefined,
    explain: (error) => error as Error,
  });
  const order: string[] = [];
  await Promise.all(
    kinds.map((kind, index) =>
      transactions.write(() => {
        const endsAt = performance.now() + callMs;
        while (performance.now() < endsAt);
        order.push(`${kind} ${index}`);
      }, kind),
    ),
  );
  transactions.close();
  database.close();
  return order;
}

test.each([
  ["in one transaction", 0],
  ["in transactions of their own", LONG_CALL_MS],
])("%s the kinds go in turn: no kind waits behind more than one call of each other", async (_, callMs) => {
  const kinds: CallKind[] = ["claim", "claim", "claim", "release", "release", "renewal", "renewal", "renewal"];
  expect(await runAll(kinds, callMs)).toEqual([
    "renewal 5",
    "release 3",
    "claim 0",
    "renewal 6",
    "release 4",
    "claim 1",
    "renewal 7",
    "claim 2",
  ]);
});
