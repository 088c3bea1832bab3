// `npm run check`: everything that can be judged without running the library. One line per check, then what is wrong.

import { undocumented } from "./check/api-page.ts";
import { inheritance, patientDrivers, pureCore, sizes } from "./check/code-rules.ts";
import { ALLOW_MISSING_ENTRIES, missingEntries } from "./check/entries.ts";
import { circles, entryGraph } from "./check/import-graph.ts";
import { importTable } from "./check/import-table.ts";
import { deadLinks } from "./check/links.ts";
import { luaFaults } from "./check/lua.ts";
import { deadCode, exportMap, published, size, typesResolve } from "./check/package-rules.ts";
import { tool } from "./check/process.ts";
import { proseFaults } from "./check/prose.ts";
import { snippetFaults } from "./check/snippets.ts";
import { readSources } from "./check/sources.ts";
import { everyTestHasOnePart } from "./check/test-parts.ts";

type Check = { readonly name: string; readonly faults: () => string[] | Promise<string[]> };

const sources = readSources("src");

/** It writes dist, which examples, snippets and the package checks read, so it is over before those start. */
const BUILD: Check = { name: "types: src to dist", faults: () => tool("npm", "run", "--silent", "build") };

const CHECKS: readonly Check[] = [
  { name: "types: whole tree", faults: () => tool("tsc") },
  { name: "format and lint", faults: () => tool("biome", "check", "--error-on-warnings") },
  { name: "promises", faults: () => tool("oxlint", "--type-aware") },
  { name: "dead code", faults: deadCode },
  { name: "import table", faults: () => importTable(sources) },
  { name: "circular imports", faults: () => circles(sources) },
  { name: "library entries", faults: () => entryGraph(sources) },
  { name: "pure core", faults: () => pureCore(sources) },
  { name: "inheritance", faults: () => inheritance(sources) },
  { name: "file and function size", faults: () => sizes(sources) },
  { name: "drivers do not wait", faults: () => patientDrivers(sources) },
  { name: "plain English", faults: () => proseFaults(sources) },
  { name: "Lua is current", faults: luaFaults },
  { name: "tests have a part", faults: everyTestHasOnePart },
  { name: "snippets compile", faults: () => snippetFaults() },
  { name: "links", faults: () => deadLinks() },
  { name: "reference is complete", faults: undocumented },
  { name: "export map", faults: exportMap },
  { name: "packed files", faults: published },
  { name: "types resolve", faults: typesResolve },
  { name: "size of the entry", faults: size },
];

let failed = 0;

async function perform({ name, faults }: Check): Promise<void> {
  const start = performance.now();
  const found = await faults();
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`${found.length === 0 ? "ok    " : "FAILED"} ${name.padEnd(24)} ${seconds.padStart(5)} s`);
  for (const fault of found) console.log(fault.replace(/^/gm, "       "));
  if (found.length > 0) failed += 1;
}

/** Two at a time: the tools are processes, and a small machine has two cores. */
async function performAll(checks: readonly Check[]): Promise<void> {
  const queue = [...checks];
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await perform(next);
  };
  await Promise.all([worker(), worker()]);
}

await perform(BUILD);
await performAll(CHECKS);
for (const { name, source } of missingEntries()) {
  console.log(`${ALLOW_MISSING_ENTRIES ? "warn  " : "FAILED"} "${name}" has no source yet: ${source}`);
  if (!ALLOW_MISSING_ENTRIES) failed += 1;
}
if (failed > 0) {
  console.log(`${failed} checks failed`);
  process.exitCode = 1;
}
