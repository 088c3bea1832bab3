// The entries of the package: what the export map and bin promise, and the sources they are built from.

import { readFileSync } from "node:fs";

export type PackageEntry = {
  /** As in the export map ("./memory"), or "bin holdfast". */
  readonly name: string;
  readonly source: string;
  readonly targets: readonly string[];
  /** A loader that cannot read ES modules finds another file. */
  readonly hasCommonJs: boolean;
};

type Conditions = { readonly [condition: string]: string | Conditions };

export function readPackageEntries(): PackageEntry[] {
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as {
    readonly exports: Readonly<Record<string, string | Conditions>>;
    readonly bin: Readonly<Record<string, string>>;
  };
  const entries: PackageEntry[] = [];
  for (const [name, value] of Object.entries(manifest.exports)) {
    if (name === "./package.json" || typeof value === "string") continue;
    const source = toSourcePath(String(value.default));
    entries.push({ name, source, targets: listTargets(value), hasCommonJs: value.require !== undefined });
  }
  for (const [name, target] of Object.entries(manifest.bin)) {
    entries.push({ name: `bin ${name}`, source: toSourcePath(target), targets: [target], hasCommonJs: true });
  }
  return entries;
}

function listTargets(conditions: Conditions): string[] {
  return Object.values(conditions).flatMap((target) => (typeof target === "string" ? [target] : listTargets(target)));
}

function toSourcePath(target: string): string {
  return target.replace(/^(\.\/)?dist\//, "src/").replace(/\.js$/, ".ts");
}
