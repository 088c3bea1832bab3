// What a loss of power leaves of a folder: what a small program has synced, and of the rest what the outcome says.

import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createRandom } from "../../src/testing/random.ts";
import { until } from "../../src/testing/until.ts";
import type { PowerLossDisk, PowerLossOutcome } from "../../src/torture/disk/power-loss.ts";
import {
  countChanges,
  createPowerLossDisk,
  losePower,
  powerLossUnavailableReason,
  removePowerLossDisk,
  schedulePowerLoss,
} from "../../src/torture/disk/power-loss.ts";

const reason = powerLossUnavailableReason();
const SECTOR = 512;

describe.skipIf(reason !== null)(
  `a folder that loses its power${reason === null ? "" : `: ${reason}, skipped`}`,
  () => {
    let folder = "";
    let disk: PowerLossDisk;

    beforeEach(() => {
      folder = mkdtempSync(join(tmpdir(), "holdfast-power-"));
      writeFileSync(join(folder, "old"), "old");
      disk = createPowerLossDisk(folder);
    });

    afterEach(() => {
      removePowerLossDisk(disk);
      rmSync(folder, { recursive: true });
    });

    /** Runs a program with the functions of node:fs, and takes its power when it is done, or has lost it already. */
    async function runUntilPowerLoss(
      program: string,
      outcome: PowerLossOutcome,
      seed = 1,
    ): Promise<Awaited<ReturnType<typeof losePower>>> {
      const code = `const fs = require("node:fs");
      const sync = (path) => { const file = fs.openSync(path, "r+"); fs.fsyncSync(file); fs.closeSync(file); };
      const syncFolder = (path) => { const folder = fs.openSync(path, "r"); fs.fsyncSync(folder); fs.closeSync(folder); };
      ${program}
      process.stdout.write("done");
      setInterval(() => undefined, 1_000);`;
      const child = spawn(process.execPath, ["-e", code], {
        cwd: folder,
        env: { ...process.env, ...disk.environment },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const ended = once(child, "exit");
      let out = "";
      child.stdout.on("data", (text: Buffer) => {
        out += text;
      });
      await until(() => out === "done" || child.signalCode !== null, { within: 10_000, what: "the program" });
      const loss = await losePower(disk, [child.pid as number], createRandom(seed), outcome);
      await ended;
      return loss;
    }

    const read = (name: string): string | null =>
      existsSync(join(folder, name)) ? readFileSync(join(folder, name), "utf8") : null;

    test("what was written without a sync is lost, and what was synced is kept", async () => {
      await runUntilPowerLoss(
        `fs.writeFileSync("old", "new");
      fs.writeFileSync("kept", "kept"); sync("kept"); syncFolder(".");
      fs.appendFileSync("kept", " and more");`,
        "synced",
      );
      expect([read("old"), read("kept")]).toEqual(["old", "kept"]);
    });

    test("a synced file whose folder was not synced has no name", async () => {
      await runUntilPowerLoss(`fs.writeFileSync("new", "new"); sync("new");`, "synced");
      expect(readdirSync(folder)).toEqual(["old"]);
    });

    test("a name whose file was not synced is of an empty file, or of zeros", async () => {
      const program = `fs.writeFileSync("new", "new"); syncFolder(".");`;
      await runUntilPowerLoss(program, "synced");
      expect(read("new")).toBe("");
      const seen = new Set<string | null>();
      for (let seed = 1; seen.size < 2; seed++) {
        await runUntilPowerLoss(`fs.writeFileSync("new${seed}", "new");`, "names", seed);
        seen.add(read(`new${seed}`));
      }
      expect(seen).toEqual(new Set(["", "\0\0\0"]));
    });

    test("a renaming without a sync of the folder is undone, and with it is kept", async () => {
      const rename = `fs.writeFileSync("old.new", "new"); sync("old.new"); fs.renameSync("old.new", "old");`;
      await runUntilPowerLoss(rename, "synced");
      expect([read("old"), read("old.new")]).toEqual(["old", null]);
      await runUntilPowerLoss(rename, "contents");
      expect([read("old"), read("old.new")]).toEqual(["old", null]);
      await runUntilPowerLoss(`${rename} syncFolder(".");`, "synced");
      expect([read("old"), read("old.new")]).toEqual(["new", null]);
    });

    test("a deletion without a sync of the folder is undone", async () => {
      await runUntilPowerLoss(`fs.unlinkSync("old"); fs.writeFileSync("other", "other"); sync("other");`, "synced");
      expect([read("old"), read("other")]).toEqual(["old", null]);
    });

    test("a file that is created where one was deleted does not have its contents", async () => {
      await runUntilPowerLoss(
        `for (let n = 0; n < 20; n++) { fs.unlinkSync("old"); fs.writeFileSync("old", "never synced"); syncFolder("."); }`,
        "synced",
      );
      expect(read("old")).toBe("");
    });

    test("folders within the folder lose their names as it does", async () => {
      await runUntilPowerLoss(
        `for (const name of ["kept", "lost"]) {
        fs.mkdirSync(name); fs.writeFileSync(name + "/file", name); sync(name + "/file");
        if (name === "kept") { syncFolder(name); syncFolder("."); }
      }`,
        "synced",
      );
      expect([read("kept/file"), readdirSync(folder).sort()]).toEqual(["kept", ["kept", "old"]]);
    });

    test("a file keeps its inode", async () => {
      const { ino } = statSync(join(folder, "old"));
      await runUntilPowerLoss(`fs.writeFileSync("old", "new");`, "synced");
      expect(statSync(join(folder, "old")).ino).toBe(ino);
    });

    test("of what was not synced some sectors survive, and the last one may be torn", async () => {
      let hasTorn = false;
      const kinds = new Set<string>();
      for (let seed = 1; !hasTorn || kinds.size < 2; seed++) {
        writeFileSync(join(folder, "old"), "a".repeat(8 * SECTOR));
        removePowerLossDisk(disk);
        disk = createPowerLossDisk(folder);
        const { torn } = await runUntilPowerLoss(
          `fs.writeFileSync("old", "b".repeat(${8 * SECTOR}));`,
          "sectors",
          seed,
        );
        const text = read("old") ?? "";
        const sectors = Array.from({ length: 8 }, (_, n) => text.slice(n * SECTOR, (n + 1) * SECTOR));
        const mixed = sectors.flatMap((sector, n) => (/^(?:a+|b+)$/.test(sector) ? [] : [n]));
        expect(mixed).toEqual(torn.map(({ sector }) => sector).filter((sector) => mixed.includes(sector)));
        for (const sector of sectors) kinds.add(sector[0] as string);
        hasTorn ||= torn.length > 0;
      }
      expect(kinds).toEqual(new Set(["a", "b"]));
    });

    test("the power goes off by itself at a change, which is not done", async () => {
      await runUntilPowerLoss(`fs.writeFileSync("a", "a");`, "contents");
      schedulePowerLoss(disk, 4);
      await runUntilPowerLoss(
        `for (const name of ["b", "c", "d"]) { fs.writeFileSync(name, name); }
      throw new Error("the power is on");`,
        "names",
      );
      // two changes for each file: it is created, and written
      expect([readdirSync(folder).sort(), countChanges(disk)]).toEqual([["b", "c", "old"], 0]);
    });

    test("processes that are not to change the folder any more are all of them", async () => {
      mkdirSync(join(folder, "log"));
      removePowerLossDisk(disk);
      disk = createPowerLossDisk(folder);
      const code = `const fs = require("node:fs");
      const file = fs.openSync("log/" + process.argv[1], "a");
      for (;;) { fs.writeSync(file, "line\\n"); fs.fsyncSync(file); process.stdout.write("."); }`;
      const children = ["one", "other"].map((name) =>
        spawn(process.execPath, ["-e", code, name], {
          cwd: folder,
          env: { ...process.env, ...disk.environment },
          stdio: ["ignore", "pipe", "inherit"],
        }),
      );
      const outs = children.map(() => "");
      for (const [index, child] of children.entries())
        child.stdout.on("data", (text: Buffer) => {
          outs[index] += String(text);
        });
      const ended = children.map((child) => once(child, "close"));
      await until(() => outs.every((out) => out.length > 20), { within: 10_000, what: "lines" });
      await losePower(
        disk,
        children.map(({ pid }) => pid as number),
        createRandom(1),
        "names",
      );
      await Promise.all(ended);
      // what was said to be synced is there, and at most one more
      for (const [index, name] of ["one", "other"].entries()) {
        const lines = (read(`log/${name}`) ?? "").length / "line\n".length;
        expect(lines - (outs[index] as string).length).toBeGreaterThanOrEqual(0);
        expect(lines - (outs[index] as string).length).toBeLessThanOrEqual(1);
      }
    });
  },
);
