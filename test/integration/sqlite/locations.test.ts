/** A file with two names: each has -wal and -shm files of its own, so what is refused here would give one lock to two holders. */

import { existsSync, linkSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname } from "node:path";
import Database from "libsql";
import { describe, expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

async function openDriver(source: Parameters<typeof sqlite>[0]): Promise<Driver> {
  const driver = sqlite(source, { warn: () => undefined });
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

/** All of it is in the one file: nothing that matters is in its -wal. */
async function createDatabase(path: string): Promise<void> {
  await (await openDriver(path)).close();
  const database = new Database(path);
  database.exec("pragma wal_checkpoint(truncate)");
  database.close();
}

async function readRefusal(source: Parameters<typeof sqlite>[0]): Promise<string> {
  const thrown = await openDriver(source).then(
    () => null,
    (error: unknown) => error,
  );
  expect(thrown).toBeInstanceOf(StoreRefusedError);
  return String(thrown);
}

test("a relative path counts from the folder in which the driver was created", async () => {
  const path = newFile();
  const folder = process.cwd();
  onCleanup(() => process.chdir(folder));
  process.chdir(dirname(path));
  const driver = sqlite(basename(path), { warn: () => undefined });
  process.chdir(folder);
  await driver.open(NO_EVENTS);
  await driver.close();
  expect(existsSync(path)).toBe(true);
});

describe("a hard link", () => {
  test("is refused under both names, by path and by handle, and opens again when it is removed", async () => {
    const path = newFile();
    await createDatabase(path);
    linkSync(path, `${path}.second`);
    for (const name of [path, `${path}.second`]) {
      const message = `${name} has a second name (a hard link), under which another process could hold the same lock: remove all names but one`;
      expect(await readRefusal(name)).toContain(message);
      const handle = new Database(name);
      onCleanup(() => void handle.close());
      expect(await readRefusal(handle)).toContain("has a second name (a hard link)");
    }
    rmSync(`${path}.second`);
    expectHeld(await (await openDriver(path)).claim(makeClaim("k")));
  });

  test.each(["-wal", "-shm"])("of the %s file is refused", async (suffix) => {
    const path = newFile();
    await openDriver(path);
    linkSync(path + suffix, `${path}.second`);
    expect(await readRefusal(path)).toContain(`${path}${suffix} has a second name (a hard link)`);
  });

  test("made while the file is open: calls are refused until it is removed, and the driver goes on", async () => {
    const path = newFile();
    const driver = await openDriver(path);
    const claim = makeClaim("k");
    expectHeld(await driver.claim(claim));
    linkSync(path, `${path}.second`);
    await expect(driver.claim(makeClaim("other"))).rejects.toThrow(`${path} has a second name (a hard link)`);
    await expect(driver.release([{ claim, hasUnansweredClaim: false }])).rejects.toThrow("has a second name");
    expect(await driver.diagnose?.()).toContainEqual(
      expect.objectContaining({ name: "file", status: "fail", message: expect.stringContaining("has a second name") }),
    );
    rmSync(`${path}.second`);
    expectHeld(await driver.claim(makeClaim("other")));
    expectHeld((await driver.renew([claim]))[0]);
    expect(await driver.diagnose?.()).toContainEqual({ name: "file", status: "ok", message: path });
  });

  test("two drivers that each opened the only name of the file do not both grant", async () => {
    const [path, other] = [newFile(), newFile()];
    await createDatabase(path);
    const driver = await openDriver(path);
    linkSync(path, other);
    rmSync(path);
    // it is the only name now, but SQLite would share the -shm file of the other name within the process
    expect(await readRefusal(other)).toContain("-wal or -shm file");
    linkSync(other, path);
    await expect(driver.claim(makeClaim("k"))).rejects.toThrow("has a second name (a hard link)");
  });
});

describe("a symbolic link", () => {
  test("is no second name: both exclude each other", async () => {
    const path = newFile();
    const link = `${path}.link`;
    symlinkSync(path, link);
    const [driver, linked] = [await openDriver(path), await openDriver(link)];
    expectHeld(await driver.claim(makeClaim("k")));
    expect((await linked.claim(makeClaim("k"))).state).toBe("waiting");
  });

  test("does not hide that the -shm file beside its target was deleted", async () => {
    const path = newFile();
    symlinkSync(path, `${path}.link`);
    const driver = await openDriver(`${path}.link`);
    expectHeld(await driver.claim(makeClaim("a")));
    rmSync(`${path}-shm`);
    expect(await readRefusal(path)).toContain("-wal or -shm file");
    await expect(driver.claim(makeClaim("k"))).rejects.toThrow("-wal or -shm file");
  });
});
