/** `npm run test:mutants [-- NAME...]`: every fault of the table must be noticed; prints by what, and at which seed. */

import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { listTestFiles, suitesOf } from "../../scripts/test/suites.ts";
import type { Mutant } from "./mutants.ts";
import { applyMutant, MUTANTS } from "./mutants.ts";
import type { RunResult, Verdict } from "./verdict.ts";
import { judge, judgeInTurn } from "./verdict.ts";

/** Faults that were not caught are to be seen among many that were. */
const WORDS = { caught: "caught", survived: "SURVIVED", unjudged: "UNJUDGED" } as const;
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

/** Time limits of tests are those of `npm test`: with longer ones a fault that makes a test too slow would survive. */
const VITEST_CONFIG = `
import { TEST_TIMEOUT_MS } from "./scripts/test/suites.ts";
import { SummaryReporter } from "./scripts/test/summary-reporter.ts";
import { textModules } from "./scripts/text-modules.ts";
export default { plugins: [textModules], test: { testTimeout: TEST_TIMEOUT_MS, reporters: [new SummaryReporter()] } };`;

process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** As `npm test` does it: a test does not install what it needs. What could not be installed, tests report. */
function installRequirements(): void {
  const paths = mutants.flatMap(({ tests = PURE_TESTS }) => tests.split(" "));
  const files = listTestFiles().filter((file) => paths.some((path) => file.startsWith(path)));
  const suites = new Set(files.flatMap(suitesOf));
  spawnSync(process.execPath, ["build/test/support/setup/install.js", ...suites], { stdio: "inherit" });
}

/**
 * A copy of what is tested and of what tests it, without the configuration of the repository. Its programs never have a
 * fault.
 */
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

function runProgram(program: string, args: readonly string[]): RunResult {
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...args], {
    cwd: folder,
    encoding: "utf8",
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  return { output: stdout + stderr, code: status };
}

/** Tests that are named for it come first: most faults are out of the simulator's sight. */
function judgeFault(mutant: Mutant): Verdict {
  const judges = [() => judgeByTests(mutant), () => judgeBySimulator(mutant)];
  return judgeInTurn(mutant.tests === undefined ? judges.reverse() : judges);
}

/** As `npm run compile` does it. */
function compileSimulator(): RunResult {
  const compiled = runProgram(TSC, ["-p", "tsconfig.mutants.json"]);
  return compiled.code === 0 ? runProgram("build/scripts/compile-texts.js", ["simulator"]) : compiled;
}

function judgeBySimulator({ name }: Mutant): Verdict {
  const compiled = compileSimulator();
  if (compiled.code !== 0) throw new Error(`"${name}" does not compile:\n${compiled.output}`);
  const args = ["--seeds", SEEDS, "--failures", "1"];
  return judge("the simulator", runProgram("simulator/test/simulation/main.js", args));
}

function judgeByTests({ tests = PURE_TESTS }: Mutant): Verdict {
  return judge("the tests", runVitest(tests));
}

/**
 * Ends with the first failure: several tests that reach their time limits could take longer than the run may.
 * @param tests beginnings of paths, separated by spaces
 */
function runVitest(tests: string): RunResult {
  return runProgram(VITEST, ["run", "--bail", "1", ...tests.split(" ")]);
}

const withoutFault = new Map<string, RunResult>();

/** Tests that fail without the fault, too, would call every fault caught. */
function requirePassWithoutFault({ tests = PURE_TESTS }: Mutant): void {
  const result = withoutFault.get(tests) ?? runVitest(tests);
  withoutFault.set(tests, result);
  const verdict = judge(`without a fault, ${tests}`, result);
  if (verdict.is === "survived") return;
  throw new Error(verdict.is === "caught" ? verdict.by : verdict.why);
}

/** @throws Error if it cannot be tried */
function tryMutant(mutant: Mutant, mutatedText: string): Verdict {
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
    return judgeFault(mutant);
  } finally {
    write(original);
  }
}

installRequirements();
prepareWorkTree();
const compiled = compileSimulator();
if (compiled.code !== 0) throw new Error(`the code without faults does not compile:\n${compiled.output}`);
// all of them before any is tried: a text that has changed is found at once
const mutatedTexts = mutants.map(applyMutant);
let failed = 0;
for (const [index, mutant] of mutants.entries()) {
  const startedAt = performance.now();
  const verdict = judgeMutant(mutant, mutatedTexts[index] as string);
  if (verdict.is !== "caught") failed++;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(`${WORDS[verdict.is].padEnd(8)} ${mutant.name} (${seconds} s)${formatDetail(verdict)}`);
}
console.log(`${mutants.length - failed} passed, ${failed} failed, 0 skipped`);
if (failed > 0) process.exitCode = 1;

function formatDetail(verdict: Verdict): string {
  if (verdict.is === "survived") return "";
  return `\n         ${verdict.is === "caught" ? `by ${verdict.by}` : verdict.why}`;
}

/** One mutant that cannot be judged does not end the others. */
function judgeMutant(mutant: Mutant, mutatedText: string): Verdict {
  try {
    return tryMutant(mutant, mutatedText);
  } catch (error) {
    return { is: "unjudged", why: error instanceof Error ? error.message : String(error) };
  }
}
