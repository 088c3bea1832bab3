// Which folder may import which. Imports of types count too, except types of spi/, which everyone may use.

import ts from "typescript";
import { readPackageEntries } from "./package-entries.ts";
import type { ImportEdge, SourceTree } from "./source-tree.ts";
import { formatLocation, listAllImports } from "./source-tree.ts";

const UTIL_FILES: readonly string[] = [
  "src/errors.ts",
  "src/util/duration.ts",
  "src/util/validate.ts",
  "src/util/keys.ts",
  "src/util/ids.ts",
  "src/util/clock.ts",
  "src/util/user-directory.ts",
  "src/util/private-directory.ts",
  "src/util/loopback.ts",
  "src/protocol/lock-reference.ts",
  "src/protocol/decode-reference.ts",
];
const DRIVER_IMPORTS: readonly string[] = [
  "src/spi/",
  "src/lock-table/admission.ts",
  "src/util/backoff.ts",
  "src/util/slot-map.ts",
  ...UTIL_FILES,
];

/**
 * What our own command line needs besides what the package exports: references and sessions are no public matter, and it
 * starts faster when it loads only what it uses.
 */
const CLI_IMPORTS: readonly string[] = [
  ...UTIL_FILES,
  "src/client/",
  "src/core/",
  "src/spi/",
  "src/drivers/server/",
  "src/protocol/handshake.ts",
  "src/protocol/admin-frames.ts",
];

type ImportRow = {
  /** A file, or a folder when it ends with a slash. The first row that fits a file holds for it. */
  readonly files: readonly string[];
  /** Files and folders it may import, besides its own folder. */
  readonly may: readonly string[];
  /** Files and folders it may load with `import()`. */
  readonly mayLoad?: readonly string[];
};

const IMPORT_TABLE: readonly ImportRow[] = [
  // They may use each other (a wrong value is shown in one way everywhere), but no folder.
  { files: UTIL_FILES, may: UTIL_FILES },
  { files: ["src/core/"], may: [] },
  { files: ["src/spi/"], may: ["src/lock-table/admission.ts", "src/errors.ts"] },
  // The memory driver is the lock table with a clock.
  { files: ["src/drivers/memory.ts"], may: [...DRIVER_IMPORTS, "src/core/"] },
  // The server driver speaks the server's protocol.
  { files: ["src/drivers/server/"], may: [...DRIVER_IMPORTS, "src/protocol/"] },
  // Two dialects of the same rows.
  { files: ["src/drivers/mysql/", "src/drivers/sqlite/"], may: [...DRIVER_IMPORTS, "src/drivers/sql/"] },
  { files: ["src/drivers/"], may: DRIVER_IMPORTS },
  { files: ["src/protocol/"], may: ["src/spi/", "src/errors.ts"] },
  // The one place that knows the built-in drivers, and only loads them on demand.
  { files: ["src/client/driver-url.ts"], may: ["src/core/", "src/spi/", ...UTIL_FILES], mayLoad: ["src/drivers/"] },
  { files: ["src/client/"], may: ["src/core/", "src/spi/", ...UTIL_FILES] },
  { files: ["src/server/"], may: ["src/protocol/", "src/spi/", "src/core/", ...UTIL_FILES] },
  {
    files: ["src/conformance/"],
    may: ["src/spi/", "src/core/", "src/client/", "src/drivers/memory.ts", ...UTIL_FILES],
  },
  { files: ["src/cli/", "src/torture/", "src/dashboard/"], may: ["src/server/", ...CLI_IMPORTS, ...exportedSources()] },
  { files: ["src/index.ts"], may: ["src/client/", "src/lock-table/admission.ts", "src/spi/", ...UTIL_FILES] },
];

export function importTable(sourceTree: SourceTree): string[] {
  const faults = listAllImports(sourceTree).flatMap((edge) => {
    if (!edge.relative || isAllowedImport(edge)) return [];
    return [`${edge.from}:${edge.line} may not import ${edge.to}${edge.typeOnly ? " (not even its types)" : ""}`];
  });
  for (const path of sourceTree.keys()) {
    if (findRow(path) === undefined) faults.push(`${path}: its folder has no row in scripts/check/import-table.ts`);
  }
  return [...faults, ...findNonReexports(sourceTree.get("src/index.ts"))];
}

function isAllowedImport({ from, to, typeOnly, dynamic }: ImportEdge): boolean {
  if (typeOnly && to.startsWith("src/spi/")) return true;
  const own = folderOf(from);
  if (own !== undefined && to.startsWith(own)) return true;
  const row = findRow(from);
  const may = dynamic ? [...(row?.may ?? []), ...(row?.mayLoad ?? [])] : (row?.may ?? []);
  return may.some((target) => isWithin(to, target));
}

function findRow(path: string): ImportRow | undefined {
  return IMPORT_TABLE.find((row) => row.files.some((target) => isWithin(path, target)));
}

/** "src/core/", "src/drivers/redis/"; nothing for a file that stands alone in src/ or src/drivers/. */
function folderOf(path: string): string | undefined {
  return /^src\/(?:drivers\/[^/]+\/|(?!drivers\/)[^/]+\/)/.exec(path)?.[0];
}

function isWithin(path: string, target: string): boolean {
  return target.endsWith("/") ? path.startsWith(target) : path === target;
}

function exportedSources(): string[] {
  return readPackageEntries().flatMap((entry) => (entry.name.startsWith("bin ") ? [] : [entry.source]));
}

function findNonReexports(index: ts.SourceFile | undefined): string[] {
  const others = index?.statements.filter(
    (statement) => !ts.isExportDeclaration(statement) || statement.moduleSpecifier === undefined,
  );
  return (others ?? []).map((statement) => `${formatLocation(statement)} index.ts may only re-export`);
}
