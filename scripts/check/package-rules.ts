// The package as its users get it: the export map, the packed archive, the types in it, the size of the entry.

import { accessSync, constants, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { findMissingEntries, readPackageEntries } from "./package-entries.ts";
import { runProgram, runTool } from "./process.ts";

export function findExportMapFaults(): string[] {
  const present = readPackageEntries().filter((entry) => existsSync(entry.source));
  return present.flatMap(({ name, source, targets }) => {
    const faults = targets
      .filter((target) => !existsSync(target))
      .map((target) => `"${name}" names ${target}, which ${source} did not produce`);
    const program = name.startsWith("bin ") ? targets[0] : undefined;
    if (program !== undefined && existsSync(program) && !isExecutable(program)) {
      faults.push(`${program} is not executable`);
    }
    return faults;
  });
}

/** Knip. While entries are missing, what only they would use looks unused, so src is left out of the question. */
export function findDeadCode(): Promise<string[]> {
  const unfinished = findMissingEntries().length > 0;
  return runTool(
    "knip",
    "--no-progress",
    "--no-config-hints",
    ...(unfinished ? ["--exclude", "files,exports,types"] : []),
  );
}

export async function findPackedFaults(): Promise<string[]> {
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<string, unknown>;
  const missing = findMissingEntries().flatMap((entry) => entry.targets.map((target) => target.replace(/^\.\//, "")));
  const { messages } = await publint({ strict: true });
  return messages
    .map((message) => formatMessage(message, manifest, { color: false }) ?? message.code)
    .filter((text) => !missing.some((target) => text.includes(target)));
}

export async function checkTypesResolve(): Promise<string[]> {
  const missing = findMissingEntries().map((entry) => entry.name);
  if (missing.includes(".")) return [];
  const without = missing.filter((name) => !name.startsWith("bin "));
  const folder = mkdtempSync(join(tmpdir(), "holdfast-pack-"));
  try {
    // Without scripts: `prepare` would write dist again while other checks read it.
    const { code, text } = await runProgram(
      "npm",
      "pack",
      "--ignore-scripts",
      "--silent",
      "--pack-destination",
      folder,
    );
    if (code !== 0) return [`npm pack failed: ${text}`];
    const archive = readdirSync(folder).map((name) => join(folder, name));
    const options = without.length === 0 ? [] : ["--exclude-entrypoints", ...without];
    return await runTool("attw", ...archive, "--profile", "esm-only", "--no-emoji", ...options);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export async function checkEntrySize(): Promise<string[]> {
  if (findMissingEntries().some((entry) => entry.name === ".")) return [];
  return runTool("size-limit");
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
