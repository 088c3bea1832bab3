/** What is in use of a key with many holders is known without reading them. */

import Database from "libsql";
import { describe, expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { READ_QUEUE, READ_WAITING } from "../../../src/drivers/sql/sqlite/statements.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { SqliteInspector, useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

async function openDriver(source: Parameters<typeof sqlite>[0]): Promise<Driver> {
  const driver = sqlite(source, { silenceWarnings: ["mode", "journal", "durability"] });
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

function inspect(path: string): SqliteInspector {
  const inspector = new SqliteInspector(path);
  onCleanup(() => inspector.close());
  return inspector;
}

const permits = (count: number, limit: number, overrides: Partial<Claim> = {}): Claim =>
  makeClaim("k", { locks: [{ key: "k", permits: count, limit }], wait: false, ...overrides });

async function hold(driver: Driver, claim: Claim): Promise<Claim> {
  expect(await driver.claim(claim)).toMatchObject({ state: "held" });
  return claim;
}

describe.each([
  ["permits", 2_002],
  ["readers", ALL_PERMITS],
])("with 2,000 holders (%s)", (_, limit) => {
  test("a grant, a refusal, a waiter, a renewal and a release read the rows of hardly anybody else", async () => {
    const database = new Database(newFile());
    onCleanup(() => void database.close());
    let rowsRead = 0;
    const isOfQueue = (text: string): boolean =>
      [READ_QUEUE, READ_WAITING].includes(text.replace('"holdfast_2_claims"', "{claims}"));
    const counting = new Proxy(database, {
      get(target, name) {
        const member = Reflect.get(target, name) as unknown;
        if (name !== "prepare") return typeof member === "function" ? member.bind(target) : member;
        return (text: string) => {
          const statement = target.prepare(text);
          if (!isOfQueue(text)) return statement;
          return new Proxy(statement, {
            get(inner, method) {
              const value = Reflect.get(inner, method) as unknown;
              if (method !== "all") return typeof value === "function" ? value.bind(inner) : value;
              return (...values: unknown[]) => {
                const rows = inner.all(...values) as unknown[];
                rowsRead += rows.length;
                return rows;
              };
            },
          });
        };
      },
    });
    const driver = await openDriver(counting as never);
    const held: Claim[] = [];
    const holdUpTo = async (count: number): Promise<void> => {
      const fresh = Array.from({ length: count - held.length }, () => permits(1, limit));
      await Promise.all(fresh.map((claim) => hold(driver, claim)));
      held.push(...fresh);
    };
    /** The rows that each verb reads. */
    async function measure(): Promise<Record<string, number>> {
      const counts: Record<string, number> = {};
      const count = async <T>(verb: string, work: () => Promise<T>): Promise<T> => {
        rowsRead = 0;
        const result = await work();
        counts[verb] = rowsRead;
        return result;
      };
      const claim = await count("grant", () => hold(driver, permits(1, limit)));
      await count("refusal", () => driver.claim(permits(ALL_PERMITS, ALL_PERMITS)));
      const waiter = makeClaim("k");
      await count("waiter", () => driver.claim(waiter));
      await count("recheck", () => driver.renew([waiter], [1]));
      await count("renewal", () => driver.renew(held.slice(0, 3), [1, 1, 1]));
      await count("release", () => driver.release(toReleases(claim)));
      await driver.release(toReleases(waiter));
      return counts;
    }
    for (const count of [10, 2_000]) {
      await holdUpTo(count);
      const counts = await measure();
      expect(counts.release).toBe(1); // it is the waiter's turn
      // a recheck or a renewal reads the waiter, too, if it comes late
      expect(Math.max(...Object.values(counts))).toBeLessThan(5);
    }
    expect(await driver.release(toReleases(...held))).not.toContain(false);
  });
});

describe("what is noted as in use is what the holders have", () => {
  test("when leases end, and when a claim is detached with a shorter one", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const claims = [await hold(driver, permits(1, 6)), await hold(driver, permits(3, 6, { ttlMs: 200 }))];
    const [kept] = claims as [Claim];
    expect(await driver.claim(permits(3, 6))).toEqual({ state: "none" });
    const free = async (count: number): Promise<void> => {
      const claim = permits(count, 6);
      await until(async () => (await driver.claim(claim)).state === "held", {
        within: 5_000,
        what: `${count} permits`,
      });
      expect(await inspect(path).findViolations()).toEqual([]);
      await driver.release(toReleases(claim));
    };
    await free(5);
    expect(await driver.claim(permits(6, 6))).toEqual({ state: "none" });
    await driver.detach?.([kept], 100);
    await free(6);
    expect(inspect(path).query("select * from holdfast_2_totals")).toEqual([]);
  });

  test("when holders are revoked, and waiting claims are granted by a release", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const [first] = [await hold(driver, permits(2, 4)), await hold(driver, permits(2, 4))];
    const waiting = Array.from({ length: 3 }, () => permits(1, 4, { wait: true }));
    for (const claim of waiting) expect(await driver.claim(claim)).toMatchObject({ state: "waiting" });
    await driver.release(toReleases(first as Claim));
    expect(await driver.renew(waiting, [1, 1, 1])).toMatchObject([
      { state: "held" },
      { state: "held" },
      { state: "waiting" },
    ]);
    expect(await inspect(path).findViolations()).toEqual([]);
    const { items } = await driver.list({ key: "k" }, { max: 1 });
    const answer = items[0]?.answer;
    const token = answer?.state === "held" ? answer.token : 0n;
    expect(await driver.revoke?.([{ key: "k", token, now: true }])).toEqual([true]);
    expect(await driver.renew(waiting.slice(2), [1])).toMatchObject([{ state: "held" }]);
    expect(await inspect(path).findViolations()).toEqual([]);
  });

  test("after the clock has stepped back: leases are cut, and the holders are counted again", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    await hold(driver, permits(1, 2, { ttlMs: 400 }));
    // as if the leases had been restarted an hour from now
    const database = new Database(path);
    database.exec("update holdfast_2_claims set expires = expires + 3600000000");
    database.exec(
      "update holdfast_2_totals set first_expires = first_expires + 3600000000, written = written + 3600000000",
    );
    database.close();
    expect(await driver.claim(permits(2, 2))).toEqual({ state: "none" });
    const claim = permits(2, 2);
    await until(async () => (await driver.claim(claim)).state === "held", {
      within: 5_000,
      what: "the end of the lease",
    });
    expect(await inspect(path).findViolations()).toEqual([]);
  });

  test("an inspector sees one that is not", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    await hold(driver, permits(1, 2));
    const database = new Database(path);
    database.exec("update holdfast_2_totals set used = 2");
    database.close();
    expect(await inspect(path).findViolations()).toEqual([expect.stringContaining("totals of a key")]);
    const other = new Database(path);
    other.exec("delete from holdfast_2_totals");
    other.close();
  });
});
