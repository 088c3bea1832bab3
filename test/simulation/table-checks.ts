/** What an operator, and the checker at the end, see of a lock table. */

import type { LockTable } from "../../src/lock-table/table.ts";
import type { Clock } from "../../src/util/clock.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { InvariantChecker } from "./invariant-checker.ts";

const DAY_MICROS = 86_400_000_000;

/** Revokes some holder; returns "key token" for every token it may have handed on. */
export function revokeRandom(
  table: LockTable,
  random: SeededRandom,
  clock: Clock,
  checker: InvariantChecker,
): string[] {
  const held = [...table.records.values()].filter((record) => record.isHeld && !record.revokeReason);
  if (held.length === 0) return [];
  const { claim, token, tokenCount } = random.pick(held);
  checker.events.note("operator", `revokes ${checker.claimName(claim.id)}`);
  table.revoke(claim.locks[0].key, token, false, { now: clock.now(), micros: Math.floor(clock.wall() * 1_000) });
  const run = Array.from({ length: tokenCount }, (_, index) => token + index);
  return claim.locks.flatMap(({ key }) => run.map((message) => `${key} ${message}`));
}

/** What the table keeps although every lease has ended, `laterMs` later and a day of tokens later; empty: nothing. */
export function findTableLeftovers(table: LockTable, clock: Clock, laterMs: number): string {
  const now = clock.now();
  const micros = Math.floor(clock.wall() * 1_000);
  table.advance({ now, micros });
  const { records, tombstones, queues } = table;
  const leftovers: string[] = [];
  if (records.size > 0) leftovers.push(`${records.size} claims`);
  table.advance({ now: now + laterMs, micros: micros + DAY_MICROS });
  if (tombstones.size > 0) leftovers.push(`${tombstones.size} endings`);
  if (queues.size > 0 || table.hasIdleQueues)
    leftovers.push(`${queues.size} queues, idle ones: ${table.hasIdleQueues}`);
  if (table.nextDueAt() !== null) leftovers.push("something due");
  return leftovers.join(", ");
}
