// The entries of the package: what the export map and bin promise, and the sources they are built from.

import { readFileSync } from "node:fs";

export type PackageEntry = {
  /** As in the export map ("./memory"), or "bin holdfast". */
  readonly name: string;
  readonly source: string;
  readonly targets: readonly string[];
};

export function readPackageEntries(): PackageEntry[] {
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as {
    exports: Record<string, string | Record<string, string>>;
    bin: Record<string, string>;
  };
  const entries: PackageEntry[] = [];
  for (const [name, value] of Object.entries(manifest.exports)) {
    if (name === "./package.json") continue;
    const targets = typeof value === "string" ? [value] : Object.values(value);
    entries.push({ name, source: toSourcePath(targets.at(-1) ?? ""), targets });
  }
  for (const [name, target] of Object.entries(manifest.bin)) {
    entries.push({ name: `bin ${name}`, source: toSourcePath(target), targets: [target] });
  }
  return entries;
}

function toSourcePath(target: string): string {
  return target.replace(/^(\.\/)?dist\//, "src/").replace(/\.js$/, ".ts");
}
