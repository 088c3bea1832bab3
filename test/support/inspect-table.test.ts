// The inspector of lock tables finds what is planted in the memory driver's table, and in that of a running server.

import { afterEach, describe, expect, test } from "vitest";
import type { Entry } from "../../src/core/entry.ts";
import { ALL_PERMITS } from "../../src/core/line.ts";
import { Seat } from "../../src/core/seats.ts";
import type { Table } from "../../src/core/table.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { claimOf, cleanUp, client, running } from "../server/support.ts";
import { tableViolations } from "./inspect-table.ts";
import { excuse, inspectTables, usedTables } from "./inspected-tables.ts";

cleanUp();

interface Planted {
  readonly driver: Driver;
  readonly table: Table;
}

async function ofMemory(): Promise<Planted> {
  const store = memoryStore();
  const driver = memory({ store });
  await driver.open(() => undefined);
  return { driver, table: store.table };
}

async function ofServer(): Promise<Planted> {
  const server = await running();
  const { driver } = await client(server.addresses[0] as string);
  await driver.list({ prefix: "" }, 1);
  const [table] = usedTables();
  return { driver, table: table as Table };
}

const share = (key: string, permits: number, limit: number) => [{ key, permits, limit }];

/** The claims of the table, in the order in which they came. */
function entryAt(table: Table, index: number): Entry {
  return table.entries.values()[index] as Entry;
}

/** A place that nobody was asked about. */
function seat(table: Table, entry: Entry, key: string): Seat {
  const [{ permits, limit }] = entry.claim.holds;
  const made = new Seat(table.mint.line(key), entry, permits, limit, entry.arrival);
  entry.sit(made);
  return made;
}

const STATES: readonly (readonly [string, RegExp, (planted: Planted) => Promise<unknown>])[] = [
  [
    "two holders",
    /"k" is held beyond its limit/,
    async ({ driver, table }) => {
      await driver.claim(claimOf("k"));
      await driver.claim(claimOf("k"));
      const line = table.mint.line("k");
      const waiter = line.seats.last as Seat;
      waiter.admitted = true;
      line.frontier = waiter;
      line.used += waiter.permits;
    },
  ],
  [
    "an overfull semaphore",
    /"k" is held beyond its limit/,
    async ({ driver, table }) => {
      await driver.claim(claimOf(share("k", 2, 3)));
      await driver.claim(claimOf(share("other", 2, 3)));
      table.mint.line("k").addAdmitted(seat(table, entryAt(table, 1), "k"));
    },
  ],
  [
    "a holder in a queue",
    /holds "k" and stands in its queue/,
    async ({ driver, table }) => {
      await driver.claim(claimOf(share("k", 1, 3)));
      table.mint.line("k").add(seat(table, entryAt(table, 0), "k"));
    },
  ],
  [
    "a claim without an end",
    /has no end/,
    async ({ driver, table }) => {
      await driver.claim(claimOf("k"));
      entryAt(table, 0).expiresAt = Number.POSITIVE_INFINITY;
    },
  ],
  [
    "a place of nobody",
    /a place of \w+ on "k" belongs to no claim/,
    async ({ driver, table }) => {
      await driver.claim(claimOf("k"));
      table.entries.delete(entryAt(table, 0).claim.id);
    },
  ],
  [
    "a claim whose place is gone",
    /without its place on "k" belongs to no claim/,
    async ({ driver, table }) => {
      await driver.claim(claimOf("k"));
      const line = table.mint.line("k");
      line.remove(line.seats.first as Seat);
    },
  ],
  [
    "a sum that is wrong",
    /"k" counts 1 permits held/,
    async ({ driver, table }) => {
      await driver.claim(claimOf("k"));
      table.mint.line("k").used = 1;
    },
  ],
];

describe.each([
  ["the memory driver", ofMemory],
  ["a server", ofServer],
])("in the table of %s", (_, make) => {
  afterEach(() => {
    // what was planted is not to fail the test once more
    for (const table of usedTables()) excuse(table);
  });

  test.each(STATES)("%s is found", async (_name, expected, plant) => {
    const planted = await make();
    const { table } = planted;
    expect(usedTables().every((one) => tableViolations(one).length === 0)).toBe(true);
    await plant(planted);
    expect((await inspectTables()).join("\n")).toMatch(expected);
    expect(tableViolations(table).join("\n")).toMatch(expected);
  });

  test("what is allowed is not found", async () => {
    const { driver, table } = await make();
    await driver.claim(claimOf(["a", "b"]));
    await driver.claim(claimOf(["b", "c"]));
    await driver.claim(claimOf(share("s", 2, 4)));
    await driver.claim(claimOf(share("s", 2, 4)));
    await driver.claim(claimOf(share("r", 1, ALL_PERMITS)));
    await driver.claim(claimOf("r"));
    expect(table.entries.size).toBe(6);
    expect(tableViolations(table)).toEqual([]);
  });
});

test("on a server, a claim of a session that has ended is found: nothing would end it", async () => {
  const { driver, table } = await ofServer();
  await driver.claim(claimOf("k", { ttlMs: "session" }));
  (entryAt(table, 0).owner as { ended: boolean }).ended = true;
  expect(tableViolations(table).join("\n")).toMatch(/of a session that does not have it/);
  excuse(table);
});
