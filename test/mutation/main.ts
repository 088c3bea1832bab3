/** `npm run test:mutants [-- NAME...]`: every fault of the table must be noticed; prints by what, and at which seed. */

import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Mutant } from "./mutants.ts";
import { applyMutant, MUTANTS } from "./mutants.ts";

const SEEDS = "1500";
const PURE_TESTS = "test/unit/claim test/unit/lock-table test/unit/util test/unit/client";
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

const VITEST_CONFIG = `
import { textModules } from "./scripts/text-modules.ts";
export default { plugins: [textModules] };`;

process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** A copy of what is tested and of what tests it, without the configuration of the repository. Its programs never have a fault. */
function prepareWorkTree(): void {
  for (const part of ["src", "test", "scripts", "docs", "dist", "build", "package.json", "tsconfig.json"]) {
    // a test refuses to start a program that is older than its sources
    cpSync(join(root, part), join(folder, part), { recursive: true, preserveTimestamps: true });
  }
  symlinkSync(modules, join(folder, "node_modules"));
  const include = ["src", "test/simulation", "test/support/seeded-random.ts"];
  const config = {
    extends: "./tsconfig.json",
    compilerOptions: { incremental: false, tsBuildInfoFile: null, outDir: "simulator" },
    include,
  };
  writeFileSync(join(folder, "tsconfig.mutants.json"), JSON.stringify(config));
  writeFileSync(join(folder, "vitest.config.ts"), VITEST_CONFIG);
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

/** As `npm run compile` does it. */
function compileSimulator(): RunResult {
  const compiled = runProgram(TSC, ["-p", "tsconfig.mutants.json"]);
  return compiled.code === 0 ? runProgram("build/scripts/compile-texts.js", ["simulator"]) : compiled;
}

function runSimulator({ name }: Mutant): string | null {
  const compiled = compileSimulator();
  if (compiled.code !== 0) throw new Error(`"${name}" does not compile:\n${compiled.output}`);
  const { output, code } = runProgram("simulator/test/simulation/main.js", ["--seeds", SEEDS, "--failures", "1"]);
  if (code === 0) return null;
  if (code === null) return "the simulator, which does not end";
  return `the simulator, ${/^seed \d+: .*$/m.exec(output)?.[0] ?? firstLine(output)}`;
}

function runTests({ tests = PURE_TESTS }: Mutant): string | null {
  const { output, code } = runVitest(tests);
  if (code === 0) return null;
  const failed = [...output.matchAll(/^not ok \d+ - (.*?)(?: # .*)?$/gm)].map((match) => match[1] ?? "");
  // a file that fails to load is one failure; without any, nothing was tested
  if (failed.length === 0 && code !== null) throw new Error(`vitest ran no test of ${tests}:\n${output}`);
  const suffix = failed.length > 1 ? `, and ${failed.length - 1} more` : "";
  return `the tests: ${failed[0]?.replace(/^.*\.test\.ts > /, "") ?? "they do not end"}${suffix}`;
}

/** @param tests beginnings of paths, separated by spaces */
function runVitest(tests: string): RunResult {
  const settings = ["--reporter", "tap-flat", "--testTimeout", "60000", "--hookTimeout", "60000"];
  return runProgram(VITEST, ["run", ...settings, ...tests.split(" ")]);
}

const testedWithoutFault = new Set<string>();

/** Tests that fail without the fault, too, would call every fault caught. */
function requirePassWithoutFault({ tests = PURE_TESTS }: Mutant): void {
  if (testedWithoutFault.has(tests)) return;
  testedWithoutFault.add(tests);
  const { output, code } = runVitest(tests);
  if (code !== 0) throw new Error(`${tests} fails without a fault:\n${output.slice(-4_000)}`);
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0] ?? "";
}

/** What caught the fault; null: nothing did. @throws Error if that cannot be told */
function tryMutant(mutant: Mutant, mutatedText: string): string | null {
  requirePassWithoutFault(mutant);
  const path = join(folder, mutant.file);
  const original = readFileSync(path, "utf8");
  const { atime, mtime } = statSync(path);
  const write = (text: string): void => {
    writeFileSync(path, text);
    utimesSync(path, atime, mtime);
  };
  write(mutatedText);
  try {
    return findCatcher(mutant);
  } finally {
    write(original);
  }
}

prepareWorkTree();
const compiled = compileSimulator();
if (compiled.code !== 0) throw new Error(`the code without faults does not compile:\n${compiled.output}`);
// all of them before any is tried: a text that has changed is found at once
const mutatedTexts = mutants.map(applyMutant);
let failed = 0;
for (const [index, mutant] of mutants.entries()) {
  const startedAt = performance.now();
  const [verdict, detail] = judgeMutant(mutant, mutatedTexts[index] as string);
  if (verdict !== "caught") failed++;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(`${verdict.padEnd(8)} ${mutant.name} (${seconds} s)${detail === "" ? "" : `\n         by ${detail}`}`);
}
console.log(`${mutants.length - failed} passed, ${failed} failed, 0 skipped`);
if (failed > 0) process.exitCode = 1;

/** One mutant that cannot be judged does not end the others. */
function judgeMutant(mutant: Mutant, mutatedText: string): readonly [verdict: string, detail: string] {
  try {
    const caughtBy = tryMutant(mutant, mutatedText);
    return caughtBy === null ? ["SURVIVED", ""] : ["caught", caughtBy];
  } catch (error) {
    return ["UNJUDGED", error instanceof Error ? error.message : String(error)];
  }
}
