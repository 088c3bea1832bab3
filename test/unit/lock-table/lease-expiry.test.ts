import { array, assert, constant, integer, oneof, property, record } from "fast-check";
import { expect, test } from "vitest";
import { ClaimRecord } from "../../../src/lock-table/key-queue.ts";
import { LeaseExpiry } from "../../../src/lock-table/lease-expiry.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

function makeEntry(ttlMs: number | "session", now: number): ClaimRecord {
  const locks = [{ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS }] as const;
  const claim = { id: "i", locks, ttlMs, tokenCount: 1, floor: 0n, wait: true, label: "" };
  return new ClaimRecord(claim, null, now, ttlMs === "session" ? Number.POSITIVE_INFINITY : now + ttlMs, 1);
}

/** Takes all expired leases. */
function takeExpiredIds(leaseExpiry: LeaseExpiry<unknown>, now: number): Set<ClaimRecord> {
  const records = new Set<ClaimRecord>();
  for (let record = leaseExpiry.takeExpired(now); record !== null; record = leaseExpiry.takeExpired(now))
    records.add(record);
  return records;
}

const arbitraryCommand = oneof(
  record({ verb: constant("add" as const), ttlMs: integer({ min: 1, max: 20 }) }),
  record({ verb: constant("remove" as const), which: integer({ min: 0, max: 9 }) }),
  record({ verb: constant("extend" as const), which: integer({ min: 0, max: 9 }) }),
  record({ verb: constant("wait" as const), ms: integer({ min: 1, max: 12 }) }),
);

test("leases expire on time after any additions, extensions and removals, and next() is neither late nor set without a lease", () => {
  assert(
    property(array(arbitraryCommand, { maxLength: 80 }), (commands) => {
      const leaseExpiry = new LeaseExpiry();
      const live: ClaimRecord[] = [];
      let now = 0;
      for (const step of commands) {
        const chosenRecord = "which" in step ? live[step.which] : undefined;
        if (step.verb === "add") {
          const record = makeEntry(step.ttlMs, now);
          leaseExpiry.add(record);
          live.push(record);
        } else if (step.verb === "wait") {
          now += step.ms;
          const dueRecords = live.filter(({ expiresAt }) => expiresAt <= now);
          expect(takeExpiredIds(leaseExpiry, now)).toEqual(new Set(dueRecords));
          for (const record of dueRecords) live.splice(live.indexOf(record), 1);
        } else if (chosenRecord !== undefined && step.verb === "extend") {
          leaseExpiry.extend(chosenRecord, now);
        } else if (chosenRecord !== undefined) {
          leaseExpiry.remove(chosenRecord);
          live.splice(live.indexOf(chosenRecord), 1);
        }
        const earliest = Math.min(...live.map(({ expiresAt }) => expiresAt));
        expect(leaseExpiry.nextDueAt() ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(earliest);
        if (live.length === 0) expect(leaseExpiry.nextDueAt()).toBeNull();
      }
    }),
  );
});

test("a session claim never expires and needs no timer", () => {
  const leaseExpiry = new LeaseExpiry();
  const record = makeEntry("session", 0);
  leaseExpiry.add(record);
  leaseExpiry.extend(record, 5);
  expect(leaseExpiry.nextDueAt()).toBeNull();
  expect(leaseExpiry.takeExpired(1e15)).toBeNull();
  leaseExpiry.remove(record);
});

test("of many leases added together each expires on time, and no removed one does", () => {
  const leaseExpiry = new LeaseExpiry();
  const records = Array.from({ length: 10_000 }, (_, index) => makeEntry(1_000 + (index % 7), 0));
  for (const record of records) leaseExpiry.add(record);
  const removed = new Set(records.filter((_, index) => index % 3 === 0));
  for (const record of removed) leaseExpiry.remove(record);
  for (let now = 999; now < 1_008; now++) {
    const dueRecords = records.filter((record) => record.expiresAt === now && !removed.has(record));
    const expiredIds = takeExpiredIds(leaseExpiry, now);
    expect(expiredIds.size).toBe(dueRecords.length);
    expect(dueRecords.every((record) => expiredIds.has(record))).toBe(true);
  }
  expect(leaseExpiry.nextDueAt()).toBeNull();
});
