/** Notice: a holder learns of the end of its lease, without a message of the store, as soon as its process runs. */

import type { History } from "../operations.ts";
import type { Findings } from "./findings.ts";
import { formatMs, MICROS } from "./findings.ts";

/** A busy machine runs timers late. */
const LATE_NOTICE_MS = 1_000;

export interface Notices {
  readonly losses: number;
  /** The longest time for which a process ran after the end of a lease until it was told. */
  readonly latestNoticeMs: number;
}

export function checkNotices({ operations, workers, endedAt }: History, findings: Findings): Notices {
  let losses = 0;
  let latest = 0;
  for (const record of operations) {
    const { leaseEndsAt, lostAt, releasingAt } = record;
    if (lostAt !== null) losses++;
    const runTime = workers.get(record.worker)?.runTime;
    if (leaseEndsAt === null || runTime === undefined) continue;
    const late = runTime.between(leaseEndsAt, Math.min(lostAt ?? endedAt, releasingAt ?? endedAt));
    if (lostAt !== null) latest = Math.max(latest, late);
    if (late > LATE_NOTICE_MS * MICROS)
      findings.add(
        "notice",
        leaseEndsAt,
        record.keys[0] ?? null,
        [record],
        `its lease had ended, and its holder, which ran, was not told for ${formatMs(late)}`,
      );
  }
  return { losses, latestNoticeMs: latest / MICROS };
}
