// The raw state of a lock table (lock-table/table.ts), which the memory driver and our server keep: its lines and entries as
// they stand in memory, not what its verbs answer.

import type { ClaimRecord, KeyQueue, QueueEntry } from "../../../src/lock-table/key-queue.ts";
import type { LockTable } from "../../../src/lock-table/table.ts";
import { Session } from "../../../src/server/session/session.ts";
import { publicTag } from "../../../src/util/ids.ts";
import type { StoredEntry, StoreView } from "./store-inspector.ts";
import { findViolations } from "./store-inspector.ts";

/** Everything that is wrong with a lock table, in words; empty if nothing is. */
export function findTableViolations(table: LockTable): string[] {
  const violations = findViolations(toStoreView(table));
  for (const line of table.queues.values()) violations.push(...findBookkeepingFaults(line));
  return violations;
}

function toStoreView(table: LockTable): StoreView {
  const entries: StoredEntry[] = [];
  const orphans: string[] = [];
  for (const line of table.queues.values()) {
    for (const queueEntry of line.entries) {
      entries.push(toStoredEntry(queueEntry));
      const { record } = queueEntry;
      const isKnown = table.records.get(record.claim.id) === record && record.entries.includes(queueEntry);
      if (!isKnown) orphans.push(`a place of ${claimTag(record)} on "${line.key}"`);
    }
  }
  const withoutExpiry: string[] = [];
  for (const record of table.records.values()) {
    for (const key of missingKeys(table, record)) orphans.push(`${claimTag(record)} without its place on "${key}"`);
    if (isAbandoned(record)) orphans.push(`${claimTag(record)} of a session that does not have it`);
    if (!hasExpiry(record)) withoutExpiry.push(claimTag(record));
  }
  return { entries, withoutExpiry, orphans };
}

function toStoredEntry({ record, queue, permits, limit, isAdmitted }: QueueEntry): StoredEntry {
  return { claim: claimTag(record), key: queue.key, permits, limit, state: isAdmitted ? "held" : "waiting" };
}

/** The keys where the claim should have a place, and the table has none: all that it has entered, or all if it holds. */
function missingKeys(table: LockTable, record: ClaimRecord): string[] {
  const { locks } = record.claim;
  const enteredCount = record.isHeld ? locks.length : Math.max(record.entries.length, 1);
  const missing: string[] = [];
  for (const [index, { key }] of locks.slice(0, enteredCount).entries()) {
    const queueEntry = record.entries[index];
    // a parked place is out of its line until its client is back
    if (queueEntry !== undefined && record.isSuspended && queueEntry === record.entries.at(-1)) continue;
    const line = table.queues.get(key);
    if (queueEntry === undefined || line !== queueEntry.queue || ![...line.entries].includes(queueEntry))
      missing.push(key);
  }
  return missing;
}

/** A lease that runs out and is scheduled to. One of a session ends with it: see isAbandoned(). */
function hasExpiry({ claim, expiresAt, heapIndex }: ClaimRecord): boolean {
  return claim.ttlMs === "session" || (Number.isFinite(expiresAt) && heapIndex !== -1);
}

/** On our server: its session has ended, or does not count it among its claims, so that nothing would end it. */
function isAbandoned({ owner, ownerList }: ClaimRecord): boolean {
  return owner instanceof Session && (owner.isEnded || ownerList !== owner.records);
}

/** The sum and the frontier of a line are what its seats say. */
function findBookkeepingFaults({ key, entries, lastAdmitted, usedPermits, recallableCount }: KeyQueue): string[] {
  const queueEntries = [...entries];
  const admitted = queueEntries.filter((entry) => entry.isAdmitted);
  const violations: string[] = [];
  const sum = admitted.reduce((total, { permits }) => total + permits, 0);
  if (sum !== usedPermits) violations.push(`"${key}" counts ${usedPermits} permits held, and ${sum} are`);
  if (queueEntries.slice(0, admitted.length).some((entry) => !entry.isAdmitted))
    violations.push(`"${key}" has a waiter before a holder`);
  if (lastAdmitted !== (admitted.at(-1) ?? null)) violations.push(`"${key}" has a wrong frontier`);
  const recallable = admitted.filter(({ record }) => record.isHeld && record.claim.recall).length;
  if (recallable !== recallableCount)
    violations.push(`"${key}" counts ${recallableCount} holders to recall, and has ${recallable}`);
  if (queueEntries.length !== entries.size)
    violations.push(`"${key}" counts ${entries.size} places, and has ${queueEntries.length}`);
  return violations;
}

function claimTag({ claim }: ClaimRecord): string {
  return publicTag(claim.id);
}
