/** The command line on a file of SQLite. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { SqliteInspector } from "../../support/stores/sqlite.ts";

const sandbox = cliSandbox();

test("runs on one file exclude each other, are listed, and leave nothing", async () => {
  const env = { HOLDFAST_URL: `sqlite:${join(sandbox.folder, "locks.db")}` };
  const first = sandbox.start(["run", "nightly", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exec sleep 60"], { env });
  await until(() => first.out() !== "", { within: 20_000, what: "the first command" });
  const list = await sandbox.run(["ls"], { env });
  expect(list.out).toMatch(/^nightly +held .* \d{16} /m);
  const refused = await sandbox.run(["run", "nightly", "--no-wait", "--", "true"], { env });
  expect([refused.code, refused.err]).toEqual([124, expect.stringContaining('"nightly" is busy')]);
  const second = sandbox.start(["run", "nightly", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"], { env });
  await until(async () => /waiting/.test((await sandbox.run(["ls"], { env })).out), {
    within: 20_000,
    what: "the waiter",
  });
  first.process.kill("SIGTERM");
  expect((await second.ended).code).toBe(0);
  expect(BigInt(second.out())).toBeGreaterThan(BigInt(first.out()));
  await first.ended;
  const inspector = new SqliteInspector(join(sandbox.folder, "locks.db"));
  expect(await inspector.findViolations({ expectEmpty: true })).toEqual([]);
  inspector.close();
});

test("doctor shows the file and its settings", async () => {
  const env = { HOLDFAST_URL: `sqlite:${join(sandbox.folder, "locks.db")}` };
  const { code, out } = await sandbox.run(["doctor"], { env });
  expect(code).toBe(0);
  expect(out).toMatch(/^ok +version +SQLite 3\.\d+/m);
  expect(out).toMatch(/^ok +journal +journal_mode is wal/m);
  expect(out).toMatch(/^ok +durability +synchronous is FULL/m);
  expect(out).toMatch(/^ok +latency/m);
});

test("a file that cannot be a database ends a run with the reason, before its command", async () => {
  const env = { HOLDFAST_URL: `sqlite:${sandbox.folder}` };
  const { code, err, out } = await sandbox.run(["run", "k", "--", "echo", "ran"], { env });
  expect([code, out]).toEqual([77, ""]);
  expect(err).toContain(`${sandbox.folder} is a folder: name a file`);
});
