/** Runs examples/bonus as a user would, against a server of the tests. */

import { expect } from "vitest";
import { builtFile } from "./built-file.ts";
import type { CliSandbox } from "./cli-sandbox.ts";

/** On a quiet machine a strategy takes about a second. */
export const BONUS_EXAMPLE_MS = 180_000;

/** Expects that it found no fault of a safe strategy, and returns the rows of its table, without their times. */
export async function runBonusExample(
  sandbox: CliSandbox,
  url: string,
  strategies: readonly string[],
): Promise<readonly string[]> {
  const program = builtFile("build/examples/bonus/main.js");
  const options = strategies.flatMap((strategy) => ["--strategy", strategy]);
  const { code, out, err } = await sandbox.startProgram([process.execPath, program, ...options, url], {
    cwd: sandbox.folder,
  }).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  const [, head = "", ...rows] = out.trimEnd().split("\n");
  expect(head.split(/ {2,}/)).toEqual(["strategy", "won", "sold out", "repeated", "retried", "left", "seconds"]);
  return rows.map((row) => row.replace(/ +\d+\.\d(?= |$)/, "").replace(/ {2,}/g, " | "));
}
