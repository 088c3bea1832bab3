/** What a PostgreSQL says about the advisory locks of one database. */

import type { TestDatabase } from "./sql-database.ts";

const READ_LOCKS = `select classid::bigint as high, objid::bigint as low, objsubid::int as kind, mode, granted, pid
  from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`;

interface AdvisoryLock {
  /** The same for the same lock. */
  readonly name: string;
  readonly isShared: boolean;
  readonly isGranted: boolean;
  readonly pid: number;
}

export async function readAdvisoryLocks(query: TestDatabase["query"]): Promise<AdvisoryLock[]> {
  return (await query(READ_LOCKS)).map(({ high, low, kind, mode, granted, pid }) => ({
    name: `${high}:${low}:${kind}`,
    isShared: mode === "ShareLock",
    isGranted: granted === true,
    pid: Number(pid),
  }));
}

/** A session has a lock once in the view, however often it has taken it: shared and exclusive at once is a fault of ours. */
export function findAdvisoryViolations(locks: readonly AdvisoryLock[]): string[] {
  const granted = locks.filter(({ isGranted }) => isGranted);
  const isExcluded = (one: AdvisoryLock): boolean =>
    granted.some((other) => other !== one && other.name === one.name && !(one.isShared && other.isShared));
  return granted.filter(isExcluded).map(({ name, pid }) => `session ${pid} and another one have the lock ${name}`);
}
