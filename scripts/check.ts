// `npm run check`: everything that can be judged without running the library. One line per check, then what is wrong.

import { findUndocumented } from "./check/api-page.ts";
import {
  classTests,
  componentSizes,
  deadCodeRuleRows,
  driversWithoutTimers,
  fileAndFunctionSizes,
  inheritance,
  pureCore,
  weakCollections,
} from "./check/code-rules.ts";
import { brokenLinks, findMissingPaths, unlistedPages } from "./check/doc-links.ts";
import { importCycles, libraryEntryImports } from "./check/import-graph.ts";
import { deadImportRows, importTable } from "./check/import-table.ts";
import { findUnlistedNames } from "./check/lua-names.ts";
import { checkTypesResolve, findExportMapFaults, findPackedFaults } from "./check/package-rules.ts";
import { isInstalled, runTool } from "./check/process.ts";
import { proseFaults } from "./check/prose.ts";
import { findUnlistedRules } from "./check/restated-rules.ts";
import { findProgramFaults, findSnippetFaults } from "./check/snippets.ts";
import { readSourceTree } from "./check/source-tree.ts";
import { deadSuiteRows, findMatrixProblems, testsWithoutOneSuite } from "./check/test-suites.ts";
import { findLongLuaFunctions, findMissingHeads, findUnusedTexts } from "./check/text-files.ts";
import { listFiles } from "./list-files.ts";

type Check = {
  readonly name: string;
  readonly faults: () => string[] | Promise<string[]>;
  /** A program that npm does not install; without it the check is not run. */
  readonly program?: string;
};

const files = listFiles("src");
const sources = readSourceTree("src");
const SHELL_SCRIPTS: readonly string[] = ["src/cli/commands/run/watchdog.sh", ".ci/run"];

/** It writes dist, which examples, snippets and the package checks read, so it is over before those start. */
const BUILD: Check = { name: "types: src to dist", faults: () => runTool("npm", "run", "--silent", "build") };

const CHECKS: readonly Check[] = [
  { name: "types: whole tree", faults: () => runTool("npm", "run", "--silent", "compile") },
  { name: "types: pages", faults: () => runTool("tsc", "-p", "src/dashboard/tsconfig.json") },
  { name: "format and lint", faults: () => runTool("biome", "check", "--error-on-warnings") },
  { name: "promises", faults: () => runTool("oxlint", "--type-aware") },
  { name: "dead code", faults: () => runTool("knip", "--no-progress", "--treat-config-hints-as-errors") },
  { name: "import table", faults: () => importTable(sources) },
  { name: "circular imports", faults: () => importCycles(sources) },
  { name: "library entries", faults: () => libraryEntryImports(sources) },
  { name: "pure core", faults: () => pureCore(sources) },
  { name: "inheritance", faults: () => inheritance(sources) },
  { name: "file and function size", faults: () => [...fileAndFunctionSizes(sources), ...componentSizes(sources)] },
  { name: "drivers do not wait", faults: () => driversWithoutTimers(sources) },
  { name: "weak collections", faults: () => weakCollections(sources) },
  { name: "branches by class", faults: () => classTests(sources) },
  { name: "plain English", faults: () => proseFaults(sources) },
  {
    name: "Lua, SQL and shell",
    faults: () => [...findMissingHeads(files), ...findUnusedTexts(files, sources), ...findLongLuaFunctions(files)],
  },
  { name: "names in Lua", faults: () => findUnlistedNames(files) },
  { name: "restated rules", faults: () => findUnlistedRules(files) },
  { name: "shell scripts", faults: () => runTool("shellcheck", ...SHELL_SCRIPTS), program: "shellcheck" },
  {
    name: "rows of the tables",
    faults: () => [...deadImportRows(sources), ...deadCodeRuleRows(sources), ...deadSuiteRows()],
  },
  { name: "tests have a suite", faults: testsWithoutOneSuite },
  { name: "CI runs every suite", faults: () => findMatrixProblems() },
  { name: "snippets compile", faults: () => findSnippetFaults() },
  { name: "programs in pages", faults: () => findProgramFaults() },
  { name: "links", faults: () => [...brokenLinks(), ...unlistedPages()] },
  { name: "paths in pages", faults: () => findMissingPaths() },
  { name: "reference is complete", faults: findUndocumented },
  { name: "export map", faults: findExportMapFaults },
  { name: "packed files", faults: findPackedFaults },
  { name: "types resolve", faults: checkTypesResolve },
  { name: "size of the entry", faults: () => runTool("size-limit") },
];

let failed = 0;

async function runCheck({ name, faults, program }: Check): Promise<void> {
  if (program !== undefined && !(await isInstalled(program))) {
    console.log(`NOT RUN ${name}: ${program} is not installed`);
    return;
  }
  const start = performance.now();
  const found = await faults();
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`${found.length === 0 ? "ok    " : "FAILED"} ${name.padEnd(24)} ${seconds.padStart(5)} s`);
  for (const fault of found) console.log(fault.replace(/^/gm, "       "));
  if (found.length > 0) failed += 1;
}

/** Two at a time: the tools are processes, and a small machine has two cores. */
async function runAllChecks(checks: readonly Check[]): Promise<void> {
  const queue = [...checks];
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await runCheck(next);
  };
  await Promise.all([worker(), worker()]);
}

await runCheck(BUILD);
await runAllChecks(CHECKS);
if (failed > 0) {
  console.log(`${failed} checks failed`);
  process.exitCode = 1;
}
