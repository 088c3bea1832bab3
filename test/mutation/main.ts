/** `npm run test:mutants [-- NAME...]`: every fault of the table must be noticed; prints by what, and at which seed. */

import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Mutant } from "./mutants.ts";
import { applyMutant, MUTANTS } from "./mutants.ts";

const SEEDS = "1500";
/** A fault may make the code run in circles. */
const TIMEOUT_MS = 300_000;

const selectedNames = process.argv.slice(2);
const mutants = MUTANTS.filter(
  ({ name }) => selectedNames.length === 0 || selectedNames.some((part) => name.includes(part)),
);
const root = resolve(".");
const folder = mkdtempSync(join(tmpdir(), "holdfast-mutants-"));
const modules = join(root, "node_modules");
const TSC = join(modules, "@typescript/native/bin/tsc");
const VITEST = join(modules, "vitest/vitest.mjs");

process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** A copy of what is tested and of what tests it, without the configuration of the repository. */
function prepareWorkTree(): void {
  for (const part of ["src", "test", "docs", "package.json", "tsconfig.json"]) {
    cpSync(join(root, part), join(folder, part), { recursive: true });
  }
  symlinkSync(modules, join(folder, "node_modules"));
  const include = ["src", "test/simulation", "test/support/seeded-random.ts"];
  const config = {
    extends: "./tsconfig.json",
    compilerOptions: { incremental: false, tsBuildInfoFile: null },
    include,
  };
  writeFileSync(join(folder, "tsconfig.mutants.json"), JSON.stringify(config));
}

interface RunResult {
  readonly output: string;
  /** null: it did not end. */
  readonly code: number | null;
}

function runProgram(program: string, args: readonly string[]): RunResult {
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...args], {
    cwd: folder,
    encoding: "utf8",
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  return { output: stdout + stderr, code: status };
}

/** What noticed the fault; null: nothing did. Tests that are named for it come first: most faults are out of the simulator's sight. */
function findCatcher(mutant: Mutant): string | null {
  return mutant.tests === undefined
    ? (runSimulator(mutant) ?? runTests(mutant))
    : (runTests(mutant) ?? runSimulator(mutant));
}

function runSimulator({ name }: Mutant): string | null {
  const compiled = runProgram(TSC, ["-p", "tsconfig.mutants.json"]);
  if (compiled.code !== 0) throw new Error(`"${name}" does not compile:\n${compiled.output}`);
  const { output, code } = runProgram("build/test/simulation/main.js", ["--seeds", SEEDS, "--failures", "1"]);
  if (code === 0) return null;
  if (code === null) return "the simulator, which does not end";
  return `the simulator, ${/^seed \d+: .*$/m.exec(output)?.[0] ?? firstLine(output)}`;
}

function runTests({ tests = "test/core" }: Mutant): string | null {
  const { output, code } = runProgram(VITEST, ["run", "--reporter", "tap-flat", tests]);
  if (code === 0) return null;
  const failed = [...output.matchAll(/^not ok \d+ - (.*?)(?: # .*)?$/gm)].map((match) => match[1] ?? "");
  const more = failed.length > 1 ? `, and ${failed.length - 1} more` : "";
  return `the tests: ${failed[0]?.replace(/^.*\.test\.ts > /, "") ?? "they do not run"}${more}`;
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0] ?? "";
}

prepareWorkTree();
const startedAt = runProgram(TSC, ["-p", "tsconfig.mutants.json"]);
if (startedAt.code !== 0) throw new Error(`the code without faults does not compile:\n${startedAt.output}`);
// all of them before any is tried: a text that has changed is found at once
const originalTexts = mutants.map(applyMutant);
let survived = 0;
for (const [index, mutant] of mutants.entries()) {
  const path = join(folder, mutant.file);
  const original = readFileSync(path, "utf8");
  writeFileSync(path, originalTexts[index] as string);
  const began = performance.now();
  const caught = findCatcher(mutant);
  const seconds = ((performance.now() - began) / 1_000).toFixed(1);
  writeFileSync(path, original);
  if (caught === null) survived++;
  console.log(
    `${caught === null ? "SURVIVED" : "caught  "} ${mutant.name} (${seconds} s)${caught === null ? "" : `\n         by ${caught}`}`,
  );
}
console.log(`${mutants.length - survived} passed, ${survived} failed, 0 skipped`);
if (survived > 0) process.exitCode = 1;
