// What loading a library entry can reach, and circles among imports.

import { readFileSync } from "node:fs";
import { readPackageEntries } from "./package-entries.ts";
import type { ImportEdge, SourceTree } from "./source-tree.ts";
import { listImports } from "./source-tree.ts";

/** Entries that must run with nothing installed but Node, in any process. */
const LIBRARY_ENTRIES: readonly string[] = [".", "./memory"];
const FORBIDDEN_FOLDERS: readonly string[] = ["src/cli/", "src/server/"];

export function libraryEntryImports(sourceTree: SourceTree): string[] {
  const entries = readPackageEntries().filter((entry) => LIBRARY_ENTRIES.includes(entry.name));
  return entries.flatMap((entry) => findEntryFaults(sourceTree, entry.name, entry.source));
}

function findEntryFaults(sourceTree: SourceTree, name: string, start: string): string[] {
  const faults: string[] = [];
  const cameFrom = new Map<string, string | undefined>([[start, undefined]]);
  for (const path of cameFrom.keys()) {
    const file = sourceTree.get(path);
    for (const edge of file === undefined ? [] : listImports(file)) {
      const way = `entry "${name}" reaches ${edge.to} by ${importChain(cameFrom, path)}:${edge.line}`;
      if (!edge.relative) {
        if (!isAllowedPackage(edge)) faults.push(`${way}: only node: builtins are allowed`);
      } else if (FORBIDDEN_FOLDERS.some((folder) => edge.to.startsWith(folder))) {
        faults.push(`${way}: a library entry never loads it`);
      } else if (!cameFrom.has(edge.to)) {
        cameFrom.set(edge.to, path);
      }
    }
  }
  return faults;
}

/** Node's own, and clients of stores where they are loaded on demand: the lack of one is an error that names it. */
function isAllowedPackage({ to, dynamic }: ImportEdge): boolean {
  if (to.startsWith("node:")) return true;
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as { peerDependencies?: Record<string, string> };
  return dynamic && manifest.peerDependencies?.[to] !== undefined;
}

function importChain(cameFrom: ReadonlyMap<string, string | undefined>, path: string): string {
  const before = cameFrom.get(path);
  return before === undefined ? path : `${importChain(cameFrom, before)} > ${path}`;
}

/** Types count: files that need each other's types can only be read together. Lazy imports do not, since nothing waits for them. */
export function importCycles(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, stack: readonly string[]): void => {
    const at = stack.indexOf(path);
    if (at >= 0) faults.push([...stack.slice(at), path].join(" > "));
    if (at >= 0 || done.has(path)) return;
    for (const next of importTargets(sourceTree, path)) visit(next, [...stack, path]);
    done.add(path);
  };
  for (const path of sourceTree.keys()) visit(path, []);
  return faults;
}

function importTargets(sourceTree: SourceTree, path: string): string[] {
  const file = sourceTree.get(path);
  const edges: ImportEdge[] = file === undefined ? [] : listImports(file);
  return [...new Set(edges.filter((edge) => edge.relative && !edge.dynamic).map((edge) => edge.to))];
}
