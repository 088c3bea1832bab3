/** One flipped bit in a file of a stopped database: open() refuses the file by its name, or nothing is granted twice. */

import { copyFileSync, readFileSync } from "node:fs";
import Database from "libsql";
import { expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { findSqliteRegions, flipBit } from "../../../src/torture/disk/bit-flip.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

const KEYS = ["alpha", "beta", "gamma"];
const REFUSAL = /^sqlite .*: .*(?:is damaged|not an SQLite database).*\((?:CORRUPT|NOTADB)\)$/;

async function openDriver(path: string): Promise<Driver> {
  const driver = sqlite(path, { silenceWarnings: ["mode"] });
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

/** The files of a database with held claims, as their processes left them; and the tokens. */
async function createFiles(isCheckpointed: boolean): Promise<{ readonly path: string; readonly tokens: bigint[] }> {
  const source = newFile();
  const driver = await openDriver(source);
  const tokens: bigint[] = [];
  for (const key of KEYS) tokens.push(expectHeld(await driver.claim(makeClaim(key, { ttlMs: 600_000 }))).token);
  if (isCheckpointed) {
    const database = new Database(source);
    database.exec("pragma wal_checkpoint(truncate)");
    database.close();
  }
  const path = newFile();
  for (const suffix of ["", "-wal"]) copyFileSync(source + suffix, path + suffix);
  return { path, tokens };
}

function copyFiles(path: string): string {
  const copy = newFile();
  for (const suffix of ["", "-wal"]) copyFileSync(path + suffix, copy + suffix);
  return copy;
}

function findAll(path: string, text: string): number[] {
  const bytes = readFileSync(path);
  const found: number[] = [];
  for (let at = bytes.indexOf(text); at !== -1; at = bytes.indexOf(text, at + 1)) found.push(at);
  return found;
}

async function expectRefused(path: string, offset: number, place: string): Promise<void> {
  const copy = copyFiles(path);
  flipBit(copy, offset, 0);
  const driver = sqlite(copy, { silenceWarnings: ["mode"] });
  const refusal = await driver.open(NO_EVENTS).then(
    () => null,
    (error: unknown) => error as Error,
  );
  await driver.close();
  expect(refusal, place).toBeInstanceOf(StoreRefusedError);
  expect(refusal?.message, place).toMatch(REFUSAL);
  expect(refusal?.message, place).toContain(copy);
}

test("an undamaged copy is opened, and its locks are held", async () => {
  const { path } = await createFiles(true);
  const driver = await openDriver(copyFiles(path));
  for (const key of KEYS) expect((await driver.claim(makeClaim(key, { wait: false }))).state).toBe("none");
});

test("a flipped bit in the structure of the file is refused by its name", async () => {
  const { path } = await createFiles(true);
  const regions = findSqliteRegions(path, []);
  expect(regions.length).toBeGreaterThan(10);
  for (const { name, start } of regions) await expectRefused(path, start, name);
});

test("a flipped bit of a key is refused, in the row as well as in an index", async () => {
  const { path } = await createFiles(true);
  for (const key of KEYS) {
    const places = findAll(path, key);
    expect(places.length).toBeGreaterThan(1);
    for (const offset of places) await expectRefused(path, offset, `${key} at ${offset}`);
  }
});

// SQLite keeps no checksum of a page, and takes a damaged place of its log for the end of it: the guide says so.
test("of a write-ahead log what follows a flipped bit is left out, and later tokens are higher even so", async () => {
  const { path, tokens } = await createFiles(false);
  for (const { name, start } of findSqliteRegions(`${path}-wal`, [])) {
    const copy = copyFiles(path);
    flipBit(`${copy}-wal`, start, 0);
    const driver = await openDriver(copy);
    const last = await driver.claim(makeClaim(KEYS.at(-1) as string, { wait: false }));
    expect(expectHeld(last).token, name).toBeGreaterThan(tokens.at(-1) as bigint);
  }
});
