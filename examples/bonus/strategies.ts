/** Four ways to take one of the bonuses that are left. Three are safe. */

import type { Locks } from "holdfast";
import { fence, restoreIdleTimeout } from "holdfast/fencing";
import { optimistic, stop, versionedRow } from "holdfast/optimistic";
import type { Connection, Database } from "./database.ts";
import { runTransaction } from "./database.ts";

export type Ending = "won" | "sold out" | "repeated";

export interface Claim {
  readonly ending: Ending;
  /** How often the version had moved. */
  readonly retries: number;
}

type Strategy = (database: Database, locks: Locks, userId: number) => Promise<Claim>;

interface Bonus {
  readonly id: number;
  readonly left_count: number;
  readonly version: number;
}

/** The one row that everyone wants. */
const BONUS_ID = 1;
const BONUS_LOCK = `bonus:${BONUS_ID}`;
const SOLD_OUT: Claim = { ending: "sold out", retries: 0 };
const WON: Claim = { ending: "won", retries: 0 };

/**
 * Writes only if the version is still the one that was read. One connection for reading and writing: if each statement
 * waited for the pool, the version would move meanwhile.
 */
const claimByVersion: Strategy = (database, _locks, userId) =>
  database.use(async (connection) => {
    const bonus = versionedRow<Bonus>(connection.handle, {
      table: "t_bonus",
      key: { id: BONUS_ID },
      columns: ["left_count"],
    });
    const result = await optimistic(
      {
        ...bonus,
        // one transaction: a bonus is taken if and only if its winner is recorded
        write: (row: Bonus, changes: Partial<Bonus>) =>
          runTransaction(connection, async () => {
            const hasWritten = await bonus.write(row, changes);
            if (hasWritten) await recordWinner(connection, userId);
            return hasWritten;
          }),
      },
      ({ left_count }) => (left_count === 0 ? stop("sold out") : { left_count: left_count - 1 }),
      { attempts: 10_000, timeout: "1m", minDelay: 2, maxDelay: 50 },
    );
    return { ending: result.status === "written" ? "won" : result.value, retries: result.retries };
  });

/** One after another. The connection is taken inside the lock: a claimant that waits for the lock must not keep one. */
const claimByLock: Strategy = (database, locks, userId) =>
  locks.using(BONUS_LOCK, () =>
    database.use((connection) => runTransaction(connection, () => claimUnguarded(connection, userId))),
  );

/** The same; and should the lock be lost meanwhile, the transaction cannot commit after the next holder's. */
const claimByFence: Strategy = (database, locks, userId) =>
  locks.using(BONUS_LOCK, (lock) =>
    database.use(async (connection) => {
      const claim = await runTransaction(connection, async () => {
        await fence(connection.handle, lock);
        return claimUnguarded(connection, userId);
      });
      await restoreIdleTimeout(connection.handle);
      return claim;
    }),
  );

/** Reads, then writes what was true when it read. */
const claimNaively: Strategy = (database, _locks, userId) =>
  database.use((connection) => claimUnguarded(connection, userId));

/** Correct only if no other claimant does it at the same time. */
async function claimUnguarded(connection: Connection, userId: number): Promise<Claim> {
  const [row] = await connection.query("select left_count from t_bonus where id = ?", [BONUS_ID]);
  const left = Number(row?.left_count);
  if (left <= 0) return SOLD_OUT;
  await connection.query("update t_bonus set left_count = ? where id = ?", [left - 1, BONUS_ID]);
  await recordWinner(connection, userId);
  return WON;
}

async function recordWinner(connection: Connection, userId: number): Promise<void> {
  await connection.query("insert into t_bonus_winner (user_id) values (?)", [userId]);
}

/** A user wins once, however often and wherever the button is pressed: without the guard both requests find no bonus yet. */
function guardUser(claim: Strategy): Strategy {
  return async (database, locks, userId) => {
    const guard = await locks.tryAcquire(`draw.redpacket.userid:${userId}`);
    if (guard === null) return { ending: "repeated", retries: 0 };
    try {
      const hasWon = await database.use((connection) =>
        connection.query("select 1 from t_bonus_winner where user_id = ?", [userId]),
      );
      if (hasWon.length > 0) return { ending: "repeated", retries: 0 };
      return await claim(database, locks, userId);
    } finally {
      await guard.release();
    }
  };
}

export const STRATEGIES = {
  "optimistic version": { claim: guardUser(claimByVersion), isSafe: true },
  lock: { claim: guardUser(claimByLock), isSafe: true },
  "fenced transaction": { claim: guardUser(claimByFence), isSafe: true },
  naive: { claim: claimNaively, isSafe: false },
} as const satisfies Readonly<Record<string, { readonly claim: Strategy; readonly isSafe: boolean }>>;

export type StrategyName = keyof typeof STRATEGIES;
