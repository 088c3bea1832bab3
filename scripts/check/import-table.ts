// Which folder may import which. Imports of types count too, except types of spi/, which everyone may use.

import ts from "typescript";
import { packageEntries } from "./entries.ts";
import type { Import, Sources } from "./sources.ts";
import { allImports, place } from "./sources.ts";

const SMALL: readonly string[] = [
  "src/errors.ts",
  "src/duration.ts",
  "src/checks.ts",
  "src/keys.ts",
  "src/ids.ts",
  "src/clock.ts",
  "src/user-directory.ts",
  "src/private-folder.ts",
  "src/loopback.ts",
  "src/reference.ts",
  "src/read-reference.ts",
];
const DRIVER: readonly string[] = [
  "src/spi/",
  "src/core/line.ts",
  "src/core/backoff.ts",
  "src/core/slot-map.ts",
  ...SMALL,
];

/**
 * What our own command line needs besides what the package exports: references and sessions are no public matter, and it
 * starts faster when it loads only what it uses.
 */
const CLI: readonly string[] = [
  ...SMALL,
  "src/client/",
  "src/core/",
  "src/spi/",
  "src/drivers/server/",
  "src/protocol/hello.ts",
  "src/protocol/tools.ts",
];

type Row = {
  /** A file, or a folder when it ends with a slash. The first row that fits a file holds for it. */
  readonly files: readonly string[];
  /** Files and folders it may import, besides its own folder. */
  readonly may: readonly string[];
  /** Files and folders it may load with `import()`. */
  readonly mayLoad?: readonly string[];
};

const TABLE: readonly Row[] = [
  // They may use each other (a wrong value is shown in one way everywhere), but no folder.
  { files: SMALL, may: SMALL },
  { files: ["src/core/"], may: [] },
  { files: ["src/spi/"], may: ["src/core/line.ts", "src/errors.ts"] },
  // The memory driver is the lock table with a clock.
  { files: ["src/drivers/memory.ts"], may: [...DRIVER, "src/core/"] },
  // The server driver speaks the server's protocol.
  { files: ["src/drivers/server/"], may: [...DRIVER, "src/protocol/"] },
  // Two dialects of the same rows.
  { files: ["src/drivers/mysql/", "src/drivers/sqlite/"], may: [...DRIVER, "src/drivers/sql/"] },
  { files: ["src/drivers/"], may: DRIVER },
  { files: ["src/protocol/"], may: ["src/spi/", "src/errors.ts"] },
  // The one place that knows the built-in drivers, and only loads them on demand.
  { files: ["src/client/drivers.ts"], may: ["src/core/", "src/spi/", ...SMALL], mayLoad: ["src/drivers/"] },
  { files: ["src/client/"], may: ["src/core/", "src/spi/", ...SMALL] },
  { files: ["src/server/"], may: ["src/protocol/", "src/spi/", "src/core/", ...SMALL] },
  { files: ["src/conformance/"], may: ["src/spi/", "src/core/", "src/client/", "src/drivers/memory.ts", ...SMALL] },
  { files: ["src/cli/", "src/torture/", "src/dashboard/"], may: ["src/server/", ...CLI, ...exported()] },
  { files: ["src/index.ts"], may: ["src/client/", "src/core/line.ts", "src/spi/", ...SMALL] },
];

export function importTable(sources: Sources): string[] {
  const faults = allImports(sources).flatMap((edge) => {
    if (!edge.relative || allowed(edge)) return [];
    return [`${edge.from}:${edge.line} may not import ${edge.to}${edge.typeOnly ? " (not even its types)" : ""}`];
  });
  for (const path of sources.keys()) {
    if (rowOf(path) === undefined) faults.push(`${path}: its folder has no row in scripts/check/import-table.ts`);
  }
  return [...faults, ...reexportsOnly(sources.get("src/index.ts"))];
}

function allowed({ from, to, typeOnly, dynamic }: Import): boolean {
  if (typeOnly && to.startsWith("src/spi/")) return true;
  const own = ownFolder(from);
  if (own !== undefined && to.startsWith(own)) return true;
  const row = rowOf(from);
  const may = dynamic ? [...(row?.may ?? []), ...(row?.mayLoad ?? [])] : (row?.may ?? []);
  return may.some((target) => within(to, target));
}

function rowOf(path: string): Row | undefined {
  return TABLE.find((row) => row.files.some((target) => within(path, target)));
}

/** "src/core/", "src/drivers/redis/"; nothing for a file that stands alone in src/ or src/drivers/. */
function ownFolder(path: string): string | undefined {
  return /^src\/(?:drivers\/[^/]+\/|(?!drivers\/)[^/]+\/)/.exec(path)?.[0];
}

function within(path: string, target: string): boolean {
  return target.endsWith("/") ? path.startsWith(target) : path === target;
}

function exported(): string[] {
  return packageEntries().flatMap((entry) => (entry.name.startsWith("bin ") ? [] : [entry.source]));
}

function reexportsOnly(index: ts.SourceFile | undefined): string[] {
  const others = index?.statements.filter((it) => !ts.isExportDeclaration(it) || it.moduleSpecifier === undefined);
  return (others ?? []).map((it) => `${place(it)} index.ts may only re-export`);
}
