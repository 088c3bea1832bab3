// The package as its users get it: the export map, the packed archive, the types in it.

import { accessSync, constants, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { readPackageEntries } from "./package-entries.ts";
import { runProgram, runTool } from "./process.ts";

export function findExportMapFaults(): string[] {
  return readPackageEntries().flatMap(({ name, source, targets }) => {
    if (!existsSync(source)) return [`"${name}" has no source: ${source}`];
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

export async function findPackedFaults(): Promise<string[]> {
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<string, unknown>;
  const { messages } = await publint({ strict: true });
  return messages.map((message) => formatMessage(message, manifest, { color: false }) ?? message.code);
}

export async function checkTypesResolve(): Promise<string[]> {
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
    const modulesOnly = readPackageEntries().flatMap(({ name, hasCommonJs }) => (hasCommonJs ? [] : [name]));
    const options = ["--no-emoji", "--format", "ascii"];
    return [
      ...(await runTool("attw", ...archive, ...options, "--exclude-entrypoints", ...modulesOnly)),
      ...(await runTool("attw", ...archive, ...options, "--profile", "esm-only", "--entrypoints", ...modulesOnly)),
    ];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
