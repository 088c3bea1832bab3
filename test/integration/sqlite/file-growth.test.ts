// Claims and releases write to the log beside the file again and again: both stay bounded.

import { statSync } from "node:fs";
import Database from "libsql";
import { expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { cycleClaims } from "../../support/claim-cycles.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { SqliteInspector, useSqliteFiles } from "../../support/stores/sqlite.ts";

const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const CYCLES = IS_LONG_RUN ? 1_000_000 : 1_500;
const KIB = 1_024;
const MAX_FILE_KIB = IS_LONG_RUN ? 8_192 : 512;
/** SQLite begins the log anew when 1,000 pages are in it, unless a reader still needs it. */
const MAX_LOG_KIB = 3 * 4_096;

const newFile = useSqliteFiles();

test.each(["wal", "delete"])(
  `journal mode %s: after ${CYCLES} claims and releases the files are small`,
  { timeout: IS_LONG_RUN ? 3_600_000 : 60_000 },
  async (mode) => {
    const path = newFile();
    const database = new Database(path);
    database.exec(`pragma journal_mode = ${mode}`);
    // the user's handle keeps its journal mode; a path is opened in WAL mode
    const driver = sqlite(mode === "wal" ? path : database, { silenceWarnings: ["journal", "mode"] });
    await driver.open(NO_EVENTS);
    await cycleClaims(driver, CYCLES);
    const size = (suffix: string): number => (statSync(`${path}${suffix}`, { throwIfNoEntry: false })?.size ?? 0) / KIB;
    console.log(`figure: SQLite (${mode}) after ${CYCLES} cycles: file ${size("")} KiB, log ${size("-wal")} KiB`);
    expect(size("")).toBeLessThan(MAX_FILE_KIB);
    expect(size("-wal") + size("-journal")).toBeLessThan(MAX_LOG_KIB);
    const inspector = new SqliteInspector(path);
    expect(await inspector.findViolations()).toEqual([]);
    inspector.close();
    await driver.close();
    database.close();
  },
);
