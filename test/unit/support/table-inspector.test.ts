// The inspector of lock tables finds planted faults in the memory driver's table, and in that of a running server.

import { afterEach, describe, expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { ClaimRecord } from "../../../src/lock-table/key-queue.ts";
import { QueueEntry } from "../../../src/lock-table/key-queue.ts";
import type { LockTable } from "../../../src/lock-table/table.ts";
import type { Session } from "../../../src/server/session/session.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { inspectTables, skipInspection, takeUsedTables } from "../../support/setup/table-inspection.ts";
import { findTableViolations } from "../../support/stores/table-inspector.ts";

cleanUpAfterEach();

interface TableUnderTest {
  readonly driver: Driver;
  readonly table: LockTable;
}

async function memoryTable(): Promise<TableUnderTest> {
  const store = memoryStore();
  const driver = memory({ store });
  await driver.open(NO_EVENTS);
  return { driver, table: tableOf(store) };
}

async function serverTable(): Promise<TableUnderTest> {
  const server = await startServer();
  const { driver } = await openClient(server.addresses[0] as string);
  (await driver.list({ prefix: "" }, { max: 1 })).items;
  const [table] = takeUsedTables();
  return { driver, table: table as LockTable };
}

const shareSpec = (key: string, permits: number, limit: number) => [{ key, permits, limit }];

/** The claims of the table, in order of arrival. */
function entryAtIndex(table: LockTable, index: number): ClaimRecord {
  return table.records.values()[index] as ClaimRecord;
}

/** An entry that no client claimed. */
function addEntry(table: LockTable, record: ClaimRecord, key: string): QueueEntry {
  const [{ permits, limit }] = record.claim.locks;
  const queueEntry = new QueueEntry(table.getOrCreateQueue(key), record, permits, limit, record.arrival);
  record.addEntry(queueEntry);
  return queueEntry;
}

const PLANTED_FAULTS: readonly (readonly [string, RegExp, (tableUnderTest: TableUnderTest) => Promise<unknown>])[] = [
  [
    "two holders",
    /"k" is held beyond its limit/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim("k"));
      await driver.claim(makeClaim("k"));
      const line = table.getOrCreateQueue("k");
      const waiter = line.entries.last as QueueEntry;
      waiter.isAdmitted = true;
      line.lastAdmitted = waiter;
      line.usedPermits += waiter.permits;
    },
  ],
  [
    "an overfull semaphore",
    /"k" is held beyond its limit/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim(shareSpec("k", 2, 3)));
      await driver.claim(makeClaim(shareSpec("other", 2, 3)));
      table.getOrCreateQueue("k").insertAdmitted(addEntry(table, entryAtIndex(table, 1), "k"));
    },
  ],
  [
    "a holder in a queue",
    /holds "k" and stands in its queue/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim(shareSpec("k", 1, 3)));
      table.getOrCreateQueue("k").enqueue(addEntry(table, entryAtIndex(table, 0), "k"));
    },
  ],
  [
    "a claim without an end",
    /has no end/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim("k"));
      entryAtIndex(table, 0).expiresAt = Number.POSITIVE_INFINITY;
    },
  ],
  [
    "a place of nobody",
    /a place of \w+ on "k" belongs to no claim/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim("k"));
      table.records.delete(entryAtIndex(table, 0).claim.id);
    },
  ],
  [
    "a claim whose place is gone",
    /without its place on "k" belongs to no claim/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim("k"));
      const line = table.getOrCreateQueue("k");
      line.remove(line.entries.first as QueueEntry);
    },
  ],
  [
    "a sum that is wrong",
    /"k" counts 1 permits held/,
    async ({ driver, table }) => {
      await driver.claim(makeClaim("k"));
      table.getOrCreateQueue("k").usedPermits = 1;
    },
  ],
];

describe.each([
  ["the memory driver", memoryTable],
  ["a server", serverTable],
])("in the table of %s", (_, createBroken) => {
  afterEach(() => {
    // the planted fault must not fail the test a second time
    for (const table of takeUsedTables()) skipInspection(table);
  });

  test.each(PLANTED_FAULTS)("%s is found", async (_name, expected, plant) => {
    const tableUnderTest = await createBroken();
    const { table } = tableUnderTest;
    expect(takeUsedTables().every((table) => findTableViolations(table).length === 0)).toBe(true);
    await plant(tableUnderTest);
    expect((await inspectTables()).join("\n")).toMatch(expected);
    expect(findTableViolations(table).join("\n")).toMatch(expected);
  });

  test("an allowed state is not reported", async () => {
    const { driver, table } = await createBroken();
    await driver.claim(makeClaim(["a", "b"]));
    await driver.claim(makeClaim(["b", "c"]));
    await driver.claim(makeClaim(shareSpec("s", 2, 4)));
    await driver.claim(makeClaim(shareSpec("s", 2, 4)));
    await driver.claim(makeClaim(shareSpec("r", 1, ALL_PERMITS)));
    await driver.claim(makeClaim("r"));
    expect(table.records.size).toBe(6);
    expect(findTableViolations(table)).toEqual([]);
  });
});

test("on a server, a claim of an ended session is found: nothing would end it", async () => {
  const { driver, table } = await serverTable();
  await driver.claim(makeClaim("k", { ttlMs: "session" }));
  (entryAtIndex(table, 0).owner as Session).end();
  expect(findTableViolations(table).join("\n")).toMatch(/of a session that does not have it/);
  skipInspection(table);
});
