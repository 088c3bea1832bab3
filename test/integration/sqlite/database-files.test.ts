/** What a file may be, what it contains, and what happens when it is taken away. */

import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import Database from "libsql";
import { describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { SqliteOptions } from "../../../src/drivers/sql/sqlite/driver.ts";
import { sqlite, sqliteMigration } from "../../../src/drivers/sql/sqlite/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { StoreRefusedError } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { withHeldTokens } from "../../support/held-tokens.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { expectRefusedWithoutBucket } from "../../support/stores/missing-bucket.ts";
import { SqliteInspector, useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

async function openDriver(source: Parameters<typeof sqlite>[0], options: SqliteOptions = {}): Promise<Driver> {
  const driver = withHeldTokens(sqlite(source, options));
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

function inspect(path: string): SqliteInspector {
  const inspector = new SqliteInspector(path);
  onCleanup(() => inspector.close());
  return inspector;
}

const release = (claim: ReturnType<typeof makeClaim>) => ({ claim, hasUnansweredClaim: false });

describe("open()", () => {
  test("creates a file, and the files beside it, that only their owner can read", async () => {
    const path = newFile();
    await openDriver(path);
    for (const name of [path, `${path}-wal`, `${path}-shm`]) expect(statSync(name).mode & 0o777).toBe(0o600);
  });

  test("keeps the mode of a file that exists, and warns if every user may read it", async () => {
    const path = newFile();
    writeFileSync(path, "");
    chmodSync(path, 0o664);
    const warnings: string[] = [];
    await openDriver(path, { warn: (warning) => warnings.push(warning) });
    expect(statSync(path).mode & 0o777).toBe(0o664);
    expect(warnings).toEqual([expect.stringContaining("every user of this machine may read the file")]);
  });

  test("of a url: the logger of connect() receives its warnings", async () => {
    const path = newFile();
    writeFileSync(path, "");
    chmodSync(path, 0o664);
    const warnings: string[] = [];
    const noop = (): void => undefined;
    const logger = { debug: noop, info: noop, warn: (_: object, text: string) => warnings.push(text), error: noop };
    const locks = await connect(`sqlite:${path}`, { logger });
    await locks.close();
    expect(warnings).toEqual([expect.stringContaining("every user of this machine may read the file")]);
  });

  test("of many processes' first uses at once creates the tables once", async () => {
    const path = newFile();
    const drivers = await Promise.all(Array.from({ length: 8 }, () => openDriver(path)));
    const answers = await Promise.all(drivers.map((driver) => driver.claim(makeClaim("k"))));
    expect(answers.filter(({ state }) => state === "held")).toHaveLength(1);
    expect(inspect(path).query("select count(*) as count from holdfast_2_buckets")).toEqual([{ count: 1024 }]);
  });

  const refusals: Readonly<Record<string, readonly [(path: string) => void, RegExp]>> = {
    "a folder": [(path) => mkdirSync(path), /is a folder: name a file/],
    "a file in a folder that does not exist": [
      (path) => rmSync(dirname(path), { recursive: true }),
      /its folder \S+ does not exist: create it/,
    ],
    "a file of another program": [
      (path) => writeFileSync(path, "this is no database at all ".repeat(100)),
      /is not an SQLite database, or it is encrypted: use another file \(NOTADB\)/,
    ],
    "tables of another layout": [
      (path) => withDatabase(path, (database) => database.exec("create table holdfast_layout as select 1 as version")),
      /holdfast_layout has layout 1, but this version of Holdfast uses layout 2/,
    ],
    "a database of UTF-16": [
      (path) => withDatabase(path, (database) => database.exec('pragma encoding = "UTF-16"; create table t (n)')),
      /encoding is not UTF-8/,
    ],
  };

  test.each(Object.entries(refusals))("refuses %s, naming the file", async (_, [prepare, message]) => {
    const folder = `${newFile()}.d`;
    mkdirSync(folder);
    const path = join(folder, "locks.db");
    prepare(path);
    const opening = sqlite(path, { connectTimeout: 500 }).open(NO_EVENTS);
    const error = await opening.then(
      () => null,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(StoreRefusedError);
    expect(String(error)).toMatch(message);
    expect(String(error)).toContain(path);
  });

  test("refuses a handle that is read-only", async () => {
    const path = newFile();
    await (await openDriver(path)).close();
    const handle = new Database(path, { readonly: true });
    onCleanup(() => void handle.close());
    handle.exec("pragma query_only = on");
    const driver = await openDriver(handle);
    await expect(driver.claim(makeClaim("k"))).rejects.toThrow("is read-only, but locks are written");
  });

  test("without createTables needs those of the migration", async () => {
    const path = newFile();
    await expect(openDriver(path, { createTables: false, prefix: "mine" })).rejects.toThrow(
      "there is no table mine_layout: run the statements of sqliteMigration()",
    );
    withDatabase(path, (database) => database.exec(sqliteMigration({ prefix: "mine" })));
    const driver = await openDriver(path, { createTables: false, prefix: "mine" });
    expectHeld(await driver.claim(makeClaim("k")));
  });

  test("deletes what dead processes left in queues that nobody uses any more", async () => {
    const path = newFile();
    await (await openDriver(path)).claim(makeClaim("k", { ttlMs: 1 }));
    const { now } = inspect(path).query("select unixepoch('subsec') * 1000 as now")[0] as { now: number };
    while (Date.now() < now + 5) await Promise.resolve();
    await openDriver(path);
    expect(inspect(path).query("select * from holdfast_2_claims")).toEqual([]);
  });
});

describe("a file", () => {
  test("that was deleted: its holders learn of it, and the locks of the new one exclude", async () => {
    const path = newFile();
    const warnings: string[] = [];
    const driver = await openDriver(path, { warn: (warning) => warnings.push(warning) });
    const claim = makeClaim("k", { ttlMs: 1_000 });
    const { token } = expectHeld(await driver.claim(claim));
    for (const suffix of ["", "-wal", "-shm"]) rmSync(path + suffix);
    const other = await openDriver(path);
    const otherGrant = expectHeld(await other.claim(makeClaim("k")));
    expect(otherGrant.token).toBeGreaterThan(token);
    // within an eighth of its lease a renewal is only read, from the file that this connection has open
    expect((await driver.claim(makeClaim("k"))).state).toBe("waiting");
    expect(await driver.renew([claim])).toEqual([{ state: "none" }]);
    expect(warnings).toEqual([
      `sqlite: ${path} was deleted or replaced while it was open: its locks are lost`,
      expect.stringContaining("the database has lost a lock that this client held"),
    ]);
  });

  test("that was deleted with its folder: each call is refused, and the loss is reported once", async () => {
    const folder = `${newFile()}.d`;
    mkdirSync(folder);
    const path = join(folder, "locks.db");
    const warnings: string[] = [];
    const driver = await openDriver(path, { warn: (warning) => warnings.push(warning) });
    rmSync(folder, { recursive: true });
    for (let call = 0; call < 20; call++)
      await expect(driver.claim(makeClaim("k"))).rejects.toThrow(`its folder ${folder} does not exist: create it`);
    expect(warnings).toEqual([`sqlite: ${path} was deleted or replaced while it was open: its locks are lost`]);
    mkdirSync(folder);
    expectHeld(await driver.claim(makeClaim("k")));
  });

  test("that was replaced: several calls at once go on with the new one", async () => {
    const [path, spare] = [newFile(), newFile()];
    withDatabase(spare, (database) => database.exec(sqliteMigration()));
    const warnings: string[] = [];
    const driver = await openDriver(path, { warn: (warning) => warnings.push(warning) });
    for (const suffix of ["-wal", "-shm"]) rmSync(path + suffix);
    renameSync(spare, path);
    const answers = await Promise.all(["a", "b", "c"].map((key) => driver.claim(makeClaim(key))));
    expect(answers.map(({ state }) => state)).toEqual(["held", "held", "held"]);
    expect(warnings).toHaveLength(1);
    expect(inspect(path).query("select key from holdfast_2_claims order by key")).toHaveLength(3);
  });

  // with other processes: companion-files.test.ts
  test.each(["-wal", "-shm"])("whose %s file was deleted: its process is refused until it ends", async (suffix) => {
    const path = newFile();
    const warnings: string[] = [];
    const driver = await openDriver(path, { warn: (warning) => warnings.push(warning) });
    const claim = makeClaim("a");
    expectHeld(await driver.claim(claim));
    rmSync(path + suffix);
    await expect(openDriver(path)).rejects.toThrow("restart the process");
    await expect(driver.claim(makeClaim("k"))).rejects.toThrow("restart the process");
    await expect(driver.list({ prefix: "" }, { max: 1 })).rejects.toThrow(StoreRefusedError);
    expect(await driver.renew([claim])).toEqual([{ state: "none" }]);
    expect(warnings).toEqual([
      expect.stringContaining("-wal or -shm file"),
      expect.stringContaining("the database has lost a lock that this client held"),
    ]);
    await driver.close();
    await expect(openDriver(path)).rejects.toThrow("restart the process");
  });

  test("whose bucket row was deleted: calls that need it are refused, and change nothing", async () => {
    const path = newFile();
    await expectRefusedWithoutBucket({
      driver: await openDriver(path),
      tables: { buckets: "holdfast_2_buckets", claims: "holdfast_2_claims" },
      hasRowLocks: false,
      run: async (text) => withDatabase(path, (database) => database.exec(text)),
      readClaims: async () => inspect(path).query("select * from holdfast_2_claims order by arrival"),
    });
  });

  test("whose bucket row was deleted: a request is refused with the remedy, which inserts the row", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    withDatabase(path, (database) => database.exec("delete from holdfast_2_buckets"));
    const error = await driver.claim(makeClaim("k")).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(StoreRefusedError);
    expect(String(error)).toContain("run the statements of sqliteMigration()");
    withDatabase(path, (database) => database.exec(sqliteMigration()));
    expectHeld(await driver.claim(makeClaim("k")));
  });

  test("that was deleted under a handle of the user: calls are refused", async () => {
    const path = newFile();
    const handle = new Database(path);
    onCleanup(() => void handle.close());
    handle.exec("pragma journal_mode = wal; create table mine (n int)");
    const driver = await openDriver(handle, { silenceWarnings: ["mode"] });
    rmSync(path);
    await expect(driver.claim(makeClaim("k"))).rejects.toThrow("was deleted or replaced while it was open");
    expect(existsSync(path)).toBe(false);
  });

  test("contains the ids of claims, so lists and errors do not", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const claim = makeClaim("k", { label: "me" });
    await driver.claim(claim);
    const shown = JSON.stringify(
      [await driver.list({ prefix: "" }, { max: 10 }), await driver.diagnose?.()],
      bigintText,
    );
    expect(shown).toContain("me");
    expect(shown).not.toContain(claim.id);
    expect(readFileSync(`${path}-wal`).includes(claim.id)).toBe(true);
  });
});

describe("numbers and texts are exact:", () => {
  test("tokens above 2^53", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const high = 2n ** 60n + 1n;
    withDatabase(path, (database) => database.exec(`update holdfast_2_buckets set last_token = ${high}`));
    const claim = makeClaim("k", { tokenCount: 3 });
    const { token } = expectHeld(await driver.claim(claim));
    expect(token).toBe(high + 1n);
    expect(expectHeld((await driver.renew([claim]))[0]).token).toBe(high + 1n);
    const { items } = await driver.list({ key: "k" }, { max: 1 });
    expect(items[0]?.answer).toMatchObject({ token: high + 1n, tokenCount: 3 });
    expect(await driver.revoke?.([{ key: "k", token: high + 3n, now: true }])).toEqual([true]);
    expect(expectHeld(await driver.claim(makeClaim("k"))).token).toBe(high + 4n);
  });

  test("a floor near the highest number is refused, and the key stays usable", async () => {
    const driver = await openDriver(newFile());
    await expect(driver.claim(makeClaim("k", { floor: 2n ** 63n - 1n }))).rejects.toThrow(StoreRefusedError);
    expectHeld(await driver.claim(makeClaim("k")));
  });

  test("keys with every character that SQL, LIKE or a shell takes for another", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const keys = [
      "'",
      "''; drop table holdfast_2_claims; --",
      '"',
      "%",
      "a%",
      "a_",
      "ab",
      "A",
      "a",
      "a ",
      "\u00e4",
      "a\u0308",
      "?1",
      "$1",
      "{claims}",
      "\\",
      "\u{10ffff}",
      "\ufffd",
      "\u{1f512}",
    ];
    const claims = keys.map((key) => makeClaim(key));
    for (const claim of claims) expectHeld(await driver.claim(claim));
    const list = async (prefix: string): Promise<string[]> =>
      (await driver.list({ prefix }, { max: 100 })).items.map(({ locks: [{ key }] }) => key);
    const inOrder = (left: string, right: string): number => Buffer.compare(Buffer.from(left), Buffer.from(right));
    expect(await list("")).toEqual([...keys].sort(inOrder));
    expect(await list("a%")).toEqual(["a%"]);
    expect(await list("a")).toEqual(["a", "a ", "a%", "a_", "ab", "a\u0308"]);
    expect(await list("\u{10ffff}")).toEqual(["\u{10ffff}"]);
    expect(await driver.release(claims.map(release))).toEqual(claims.map(() => true));
    expect(await inspect(path).findViolations({ expectEmpty: true })).toEqual([]);
  });

  test("the clock is that of this machine, to a millisecond", async () => {
    const driver = await openDriver(newFile());
    const before = Date.now();
    const { storeTimeMs = 0 } = expectHeld(await driver.claim(makeClaim("k")));
    expect(storeTimeMs).toBeGreaterThanOrEqual(before - 1);
    expect(storeTimeMs).toBeLessThanOrEqual(Date.now() + 1);
    const times = new Set<number>();
    const endsAt = performance.now() + 50;
    while (performance.now() < endsAt) {
      const [answer] = await driver.renew([makeClaim("none"), makeClaim("k")]);
      expect(answer?.state).toBe("none");
      const waiting = await driver.claim(makeClaim("k"));
      times.add((waiting as { readonly storeTimeMs?: number }).storeTimeMs ?? 0);
    }
    expect(times.size).toBeGreaterThan(3);
  });
});

test("a reader that stays open delays neither the first use of a file, nor the next open(), nor a lock", async () => {
  const path = newFile();
  withDatabase(path, (database) =>
    database.exec("pragma journal_mode = wal; create table reports (n); insert into reports values (1)"),
  );
  const reader = new Database(path);
  onCleanup(() => void reader.close());
  reader.exec("begin");
  expect(reader.prepare("select * from reports").all()).toHaveLength(1);
  const driver = await openDriver(path);
  const claim = makeClaim("k");
  expect(await driver.claim(claim)).toMatchObject({ state: "held" });
  withDatabase(path, (database) => database.exec("insert into holdfast_2_tombstones values ('a', 'released', 1)"));
  const other = await openDriver(path); // which purges
  expect(inspect(path).query("select * from holdfast_2_tombstones")).toEqual([]);
  expect(await other.claim(makeClaim("other"))).toMatchObject({ state: "held" });
  expect(await driver.release(toReleases(claim))).toEqual([true]);
  reader.exec("rollback");
});

test("tombstones of a burst are removed in batches by later claims, which write none", async () => {
  const path = newFile();
  const driver = await openDriver(path);
  withDatabase(path, (database) =>
    database.exec(`insert into holdfast_2_tombstones
      with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 20000)
      select 'ended-' || n, 'released', 1 from numbers`),
  );
  const countTombstones = (): unknown =>
    inspect(path).query("select count(*) as count from holdfast_2_tombstones")[0]?.count;
  let pairs = 0;
  while (countTombstones() !== 0 && pairs < 5_000) {
    for (let index = 0; index < 100; index++, pairs++) {
      const claim = makeClaim("free");
      await driver.claim(claim);
      await driver.release(toReleases(claim));
    }
  }
  // 40 batches, one in 32 pairs
  expect(pairs).toBeLessThan(4_000);
});

test("a lease never looks longer than its ttl, and is cut to it, after the clock has stepped back", async () => {
  const path = newFile();
  const driver = await openDriver(path);
  const [holder, waiter] = [makeClaim("k", { ttlMs: 2_000 }), makeClaim("k")];
  await driver.claim(holder);
  // as if the lease had been restarted an hour from now
  withDatabase(path, (database) => database.exec("update holdfast_2_claims set expires = expires + 3600000000"));
  const { items } = await driver.list({ key: "k" }, { max: 1 });
  expect(items[0]?.answer.state === "held" && items[0].answer.remainingMs).toBe(2_000);
  const answer = await driver.claim(waiter);
  expect(answer.state === "waiting" && answer.recheckMs).toBeLessThanOrEqual(2_000);
  expect(await inspect(path).findViolations()).toEqual([]);
});

test("a page continues where the one before ended, by a cursor that another driver does not know", async () => {
  const path = newFile();
  const [driver, other] = [await openDriver(path), await openDriver(path)];
  for (let index = 0; index < 7; index++) await driver.claim(makeClaim(`k${index % 3}`));
  const seen: string[] = [];
  let after: string | undefined;
  do {
    const page = await (seen.length % 2 === 0 ? driver : other).list({ prefix: "k" }, { max: 1, after });
    seen.push(...page.items.map(({ tag, locks: [{ key }] }) => `${key} ${tag}`));
    after = page.next;
    if (after !== undefined) expect(after).toMatch(/^[a-z2-7]{10}$/);
  } while (after !== undefined && seen.length < 20);
  expect(seen.map((line) => line.slice(0, 2))).toEqual(["k0", "k0", "k0", "k1", "k1", "k2", "k2"]);
  expect(new Set(seen).size).toBe(7);
});

function withDatabase(path: string, work: (database: InstanceType<typeof Database>) => unknown): void {
  const database = new Database(path);
  try {
    work(database);
  } finally {
    database.close();
  }
}

const bigintText = (_: string, value: unknown): unknown => (typeof value === "bigint" ? String(value) : value);
