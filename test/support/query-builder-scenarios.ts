/** fence() inside the transactions of query builders: the same sequence for each of them. */

import { expect } from "vitest";
import { createFenceTable, fence } from "../../src/fencing/index.ts";
import { createTestLock } from "./fence-scenarios.ts";

/** Runs a function in a transaction, and rolls back if it rejects. */
export type Transact = (work: (tx: unknown) => Promise<void>) => Promise<unknown>;

/** An own table for each, so that one does not see the tokens of another. */
export async function expectFenced(db: unknown, prefix: string, transact: Transact): Promise<void> {
  await createFenceTable(db, { prefix });
  const run = (token: number, mode: "exclusive" | "shared" = "exclusive"): Promise<unknown> =>
    transact((tx) => fence(tx, createTestLock(token, mode, ["it's $1 ? \\ `key`"]), { prefix }));
  await run(10);
  await run(20);
  await run(20);
  await expect(run(10)).rejects.toMatchObject({ code: "LOCK_STALE" });
  await run(40, "shared");
  await run(30, "shared");
  await run(40, "shared");
  await expect(run(35)).rejects.toMatchObject({ code: "LOCK_STALE" });
  await run(50);
  await expect(run(45, "shared")).rejects.toMatchObject({ code: "LOCK_STALE" });
}
