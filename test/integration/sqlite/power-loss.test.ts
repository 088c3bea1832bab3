// Processes that share an SQLite file, on a machine that loses its power again and again: the file is used again without
// more ado, what was granted is there, and tokens rise.

import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { PowerLossDisk, PowerLossOutcome } from "../../../src/torture/disk/power-loss.ts";
import {
  createPowerLossDisk,
  losePower,
  markSynced,
  powerLossUnavailableReason,
  removePowerLossDisk,
  schedulePowerLoss,
} from "../../../src/torture/disk/power-loss.ts";
import { findBetterSqlite3 } from "../../support/interop.ts";
import type { BundledProgram } from "../../support/processes/bundled-program.ts";
import { bundleProgram } from "../../support/processes/bundled-program.ts";
import type { ProcessHarness, RunningProcess } from "../../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../../support/processes/process-harness.ts";
import type { SqliteUserOptions } from "../../support/processes/sqlite-user.child.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);
const LOSSES = IS_LONG_RUN ? 100 : 3;
const USERS = 3;
const MAX_RUN_MS = 400;
const MAX_RUN_CHANGES = 500;
/** Without WAL a process may be kept waiting for long by the others. */
const TIMEOUT_MS = IS_LONG_RUN ? 60_000 : 15_000;

const reason = powerLossUnavailableReason();
const libsql = createRequire(import.meta.url).resolve("libsql");
const betterSqlite3 = findBetterSqlite3();
let program: BundledProgram;
beforeAll(async () => {
  program = await bundleProgram("test/support/processes/sqlite-user.child.ts");
});
afterAll(() => program.remove());

interface Setting {
  readonly name: string;
  readonly handle: SqliteUserOptions["handle"];
}

/** Grants survive with these: with less, a loss of power undoes the last ones (below). */
const WAL = ["journal_mode = wal", "synchronous = full"];
const DELETED_JOURNAL = ["journal_mode = delete", "synchronous = extra"];
const KEPT_JOURNALS = ["truncate", "persist"].map((mode) => [`journal_mode = ${mode}`, "synchronous = full"]);
const SETTINGS: readonly Setting[] = [
  { name: "a path", handle: null },
  ...(betterSqlite3 === null
    ? []
    : [{ name: "a handle of better-sqlite3", handle: { module: betterSqlite3, pragmas: WAL } }]),
  ...(IS_LONG_RUN ? [DELETED_JOURNAL, ...KEPT_JOURNALS] : []).map((pragmas) => ({
    name: `a handle of libsql, ${pragmas.join(", ")}`,
    handle: { module: libsql, pragmas },
  })),
];

interface Grant {
  readonly key: string;
  readonly token: bigint;
}

/** What a process was told before it was killed. */
interface Told {
  readonly granted: readonly Grant[];
  /** Granted, and not begun to release. */
  readonly held: readonly Grant[];
}

class UsersOfFile {
  readonly path: string;
  readonly faults: string[] = [];
  grants = 0;
  readonly #harness: ProcessHarness;
  readonly #disk: PowerLossDisk;
  readonly #random: SeededRandom;
  readonly #handle: Setting["handle"];
  readonly #highest = new Map<string, bigint>();

  constructor(harness: ProcessHarness, disk: PowerLossDisk, random: SeededRandom, handle: Setting["handle"]) {
    this.path = join(disk.folder, "locks.db");
    this.#harness = harness;
    this.#disk = disk;
    this.#random = random;
    this.#handle = handle;
  }

  /** Processes work until the power goes off. Then what they were told is compared with the file. */
  async run(outcome?: PowerLossOutcome): Promise<string> {
    const options: SqliteUserOptions = { path: this.path, handle: this.#handle, keys: ["a", "b", "c"], turns: 0 };
    const isScheduled = this.#random.chance(0.5);
    // the power may go off amid the start, too
    if (isScheduled) schedulePowerLoss(this.#disk, 1 + this.#random.int(MAX_RUN_CHANGES));
    const users = Array.from({ length: USERS }, () => startUser(this.#harness, this.#disk, options));
    const isOff = (): boolean => isScheduled && users.some((user) => user.hasEnded());
    await until(() => isOff() || users.every((user) => user.out().includes("held")), {
      within: TIMEOUT_MS,
      what: `a grant of each process: ${users.map((user) => user.err()).join("")}`,
    });
    if (isScheduled) await until(isOff, { within: TIMEOUT_MS, what: "the end of the power" });
    else await delay(this.#random.int(MAX_RUN_MS));
    const loss = await losePower(
      this.#disk,
      users.map(({ pid }) => pid),
      this.#random,
      outcome,
    );
    for (const user of users) {
      await user.ended;
      if (user.err() !== "") this.faults.push(user.err());
    }
    this.#compare(users.map((user) => readTold(user)));
    markSynced(this.#disk);
    return `${loss.outcome}${isScheduled ? ", amid a change" : ""}`;
  }

  #compare(told: readonly Told[]): void {
    const { integrity, rows } = readFile(this.path);
    if (integrity !== "ok") this.faults.push(integrity);
    const found = new Set(rows);
    for (const { key, token } of told.flatMap(({ held }) => held))
      if (!found.has(`${key} ${token}`)) this.faults.push(`${key} was granted with ${token}, and is free`);
    this.#compareTokens(told.flatMap(({ granted }) => granted));
  }

  #compareTokens(granted: readonly Grant[]): void {
    this.grants += granted.length;
    const seen = new Set<string>();
    for (const { key, token } of granted) {
      const earlier = this.#highest.get(key) ?? 0n;
      if (token <= earlier) this.faults.push(`${key} was granted with ${token}, after ${earlier} before the loss`);
      if (seen.has(`${key} ${token}`)) this.faults.push(`${key} was granted twice with ${token}`);
      seen.add(`${key} ${token}`);
    }
    for (const { key, token } of granted) if (token > (this.#highest.get(key) ?? 0n)) this.#highest.set(key, token);
  }
}

function createDisk(harness: ProcessHarness): PowerLossDisk {
  mkdirSync(harness.path("disk"));
  const disk = createPowerLossDisk(harness.path("disk"));
  harness.onTeardown(() => removePowerLossDisk(disk));
  return disk;
}

function startUser(harness: ProcessHarness, disk: PowerLossDisk, options: SqliteUserOptions): RunningProcess {
  return harness.startProgram([process.execPath, program.path, JSON.stringify(options)], { env: disk.environment });
}

function readTold(user: RunningProcess): Told {
  const granted: Grant[] = [];
  const held = new Map<string, Grant>();
  for (const line of user.out().split("\n").slice(0, -1)) {
    const [, word, token = "", key = ""] = /^(held|releasing) (\d+) (.*)$/.exec(line) ?? [];
    if (word === "held") {
      const grant = { key, token: BigInt(token) };
      granted.push(grant);
      held.set(key, grant);
    } else held.delete(key);
  }
  return { granted, held: [...held.values()] };
}

/**
 * What is in the file, by a process of its own: libsql closes a database at a time of its own, and one that is open would
 * have the next processes share its memory, as if the machine had not been started again.
 */
function readFile(path: string): { readonly integrity: string; readonly rows: readonly string[] } {
  const code = `const database = new (require(${JSON.stringify(libsql)}))(${JSON.stringify(path)});
    const read = (text) => database.prepare(text).all();
    const [{ integrity_check: integrity }] = read("pragma integrity_check");
    const hasTables = read("select 1 from sqlite_schema where name = 'holdfast_2_claims'").length > 0;
    const claims = hasTables ? read("select key || ' ' || token as name from holdfast_2_claims") : [];
    console.log(JSON.stringify({ integrity, rows: claims.map(({ name }) => name) }));`;
  const { stdout, stderr } = spawnSync(process.execPath, ["-e", code], { encoding: "utf8" });
  if (stderr !== "") throw new Error(stderr);
  return JSON.parse(stdout);
}

for (const { name, handle } of SETTINGS) {
  test.skipIf(reason !== null)(
    `${name}: a machine loses its power ${LOSSES} times: what was granted is there, and tokens rise (HOLDFAST_SEED=${seed})${reason === null ? "" : `: ${reason}, skipped`}`,
    { timeout: 20_000 + LOSSES * 20_000 },
    async ({ harness }) => {
      const disk = createDisk(harness);
      const users = new UsersOfFile(harness, disk, seededRandom(seed), handle);
      const history: string[] = [];
      for (let loss = 0; loss < LOSSES; loss++) {
        history.push(await users.run());
        expect(users.faults, history.join("\n")).toEqual([]);
      }
      console.log(`figure: ${name}: ${LOSSES} losses of power, ${users.grants} grants (HOLDFAST_SEED=${seed})`);
    },
  );
}

/** null: the driver opens the file itself. */
const LAST_GRANTS: readonly (readonly [pragmas: readonly string[] | null, survives: boolean])[] = [
  [null, true],
  [WAL, true],
  [["journal_mode = wal", "synchronous = normal"], false],
  [DELETED_JOURNAL, true],
  [["journal_mode = delete", "synchronous = full"], false],
  ...KEPT_JOURNALS.map((pragmas) => [pragmas, true] as const),
];

for (const [pragmas, survives] of LAST_GRANTS) {
  test.skipIf(reason !== null)(
    `${pragmas?.join(", ") ?? "a path"}: a loss of power ${survives ? "does not undo" : "undoes"} the last grant, as holdfast doctor says${reason === null ? "" : `: ${reason}, skipped`}`,
    { concurrent: true },
    async ({ harness }) => {
      const disk = createDisk(harness);
      const handle = pragmas === null ? null : { module: libsql, pragmas };
      const path = join(disk.folder, "locks.db");
      const user = startUser(harness, disk, { path, handle, keys: ["k"], turns: 1 });
      await until(() => user.out().includes("held"), { within: TIMEOUT_MS, what: `a grant: ${user.err()}` });
      await losePower(disk, [user.pid], seededRandom(seed), "synced");
      await user.ended;
      const [grant] = readTold(user).held;
      expect(readFile(path)).toEqual({ integrity: "ok", rows: survives ? [`${grant?.key} ${grant?.token}`] : [] });
      expect(user.out()).toContain(survives ? "grants survive" : "a loss of power may undo the last grants");
    },
  );
}
