/** The order in which calls of a process run on SQLite. */

import Database from "libsql";
import { expect, test } from "vitest";
import type { CallKind } from "../../../../src/drivers/sql/call-kinds.ts";
import { adaptSqliteDatabase } from "../../../../src/drivers/sql/clients/sqlite.ts";
import { Transactions } from "../../../../src/drivers/sql/sqlite/transactions.ts";
import { systemClock } from "../../../../src/util/clock.ts";

/** Longer than calls join a transaction: each call has one of its own. */
const LONG_CALL_MS = 10;

interface Call {
  readonly kind: CallKind;
  readonly bucket: number | null;
}

async function runAll(calls: readonly Call[], callMs: number): Promise<string[]> {
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
    calls.map(({ kind, bucket }, index) => {
      const work = (): void => {
        const endsAt = performance.now() + callMs;
        while (performance.now() < endsAt);
        order.push(`${kind} ${index}`);
      };
      return transactions.write(work, kind, true, bucket);
    }),
  );
  transactions.close();
  database.close();
  return order;
}

const MODES: readonly (readonly [name: string, callMs: number])[] = [
  ["in one transaction", 0],
  ["in transactions of their own", LONG_CALL_MS],
];

test.each(MODES)(
  "%s the kinds go in turn: no kind waits behind more than one call of each other",
  async (_, callMs) => {
    const kinds: CallKind[] = ["claim", "claim", "claim", "release", "release", "renewal", "renewal", "renewal"];
    expect(
      await runAll(
        kinds.map((kind) => ({ kind, bucket: null })),
        callMs,
      ),
    ).toEqual(["renewal 5", "release 3", "claim 0", "renewal 6", "release 4", "claim 1", "renewal 7", "claim 2"]);
  },
);

test.each(MODES)("%s claims of one key wait behind no more than one of each other key", async (_, callMs) => {
  const buckets = [1, 1, 1, 2, 2, 3];
  expect(
    await runAll(
      buckets.map((bucket) => ({ kind: "claim", bucket })),
      callMs,
    ),
  ).toEqual(["claim 0", "claim 3", "claim 5", "claim 1", "claim 4", "claim 2"]);
});
