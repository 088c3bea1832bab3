/** Runs examples/bonus as a user would, against a server of the tests. */

import { beforeAll, expect, test } from "vitest";
import { builtFile } from "./built-file.ts";
import { cliSandbox } from "./cli-sandbox.ts";
import type { DatabaseServer } from "./stores/sql-database.ts";

/** On a quiet machine a safe strategy takes about a second. */
const RUN_MS = 180_000;
const SAFE = ["optimistic version", "lock", "fenced transaction"];
const NAIVE_RUNS = 5;

export function testBonusExample(server: () => DatabaseServer): void {
  const sandbox = cliSandbox();
  let rows: readonly string[];

  // all strategies in one run, since its processes take longer to start than a naive run takes
  beforeAll(async () => {
    const { url } = await server().freshDatabase();
    const strategies = [...SAFE, ...Array.from({ length: NAIVE_RUNS }, () => "naive")];
    const options = strategies.flatMap((strategy) => ["--strategy", strategy]);
    const program = builtFile("build/examples/bonus/main.js");
    const { code, out, err } = await sandbox.startProgram([process.execPath, program, ...options, url], {
      cwd: sandbox.folder,
    }).ended;
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const [, head = "", ...lines] = out.trimEnd().split("\n");
    expect(head.split(/ {2,}/)).toEqual(["strategy", "won", "sold out", "repeated", "retried", "left", "seconds"]);
    rows = lines.map((line) => line.replace(/ +\d+\.\d(?= |$)/, "").replace(/ {2,}/g, " | "));
    expect(rows).toHaveLength(strategies.length);
  }, RUN_MS);

  test("an optimistic version, a lock and a fenced transaction sell each bonus once, and to no user twice", () => {
    for (const [index, strategy] of SAFE.entries()) {
      const [name, won, soldOut, repeated, retried, ...rest] = rows[index]?.split(" | ") ?? [];
      expect([name, won, ...rest]).toEqual([strategy, "100", "0"]);
      // a second request is repeated, or sold out if the first one was
      expect(Number(soldOut) + Number(repeated)).toBe(1_000);
      expect(Number(repeated)).toBeGreaterThan(0);
      expect(Number(retried) > 0).toBe(name === "optimistic version");
    }
  });

  test("the naive way oversells in five of five runs", () => {
    const naive = rows.slice(SAFE.length);
    expect(naive).toHaveLength(5);
    for (const row of naive) expect(row).toMatch(/^naive \| .* \| OVERSOLD by [1-9]\d*$/);
  });
}
