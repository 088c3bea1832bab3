/** A process whose own requests flood the database (test/support/own-flood.ts). */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";

test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-flood-"));
  await expectOwnFloodHarmless({ ttlMs: 3_000, createDriver: () => sqlite(join(folder, "locks.db")) });
  rmSync(folder, { recursive: true, force: true });
});
