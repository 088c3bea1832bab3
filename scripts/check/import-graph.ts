// What loading a library entry can reach, and circles among imports.

import { readFileSync } from "node:fs";
import { packageEntries } from "./entries.ts";
import type { Import, Sources } from "./sources.ts";
import { importsOf } from "./sources.ts";

/** Entries that must run with nothing installed but Node, in any process. */
const LIBRARY_ENTRIES: readonly string[] = [".", "./memory"];
const NEVER: readonly string[] = ["src/cli/", "src/server/"];

export function entryGraph(sources: Sources): string[] {
  const entries = packageEntries().filter((entry) => LIBRARY_ENTRIES.includes(entry.name));
  return entries.flatMap((entry) => entryFaults(sources, entry.name, entry.source));
}

function entryFaults(sources: Sources, name: string, start: string): string[] {
  const faults: string[] = [];
  const cameFrom = new Map<string, string | undefined>([[start, undefined]]);
  for (const path of cameFrom.keys()) {
    const file = sources.get(path);
    for (const edge of file === undefined ? [] : importsOf(file)) {
      const way = `entry "${name}" reaches ${edge.to} by ${trail(cameFrom, path)}:${edge.line}`;
      if (!edge.relative) {
        if (!isAllowed(edge)) faults.push(`${way}: only node: builtins are allowed`);
      } else if (NEVER.some((folder) => edge.to.startsWith(folder))) {
        faults.push(`${way}: a library entry never loads it`);
      } else if (!cameFrom.has(edge.to)) {
        cameFrom.set(edge.to, path);
      }
    }
  }
  return faults;
}

/** Node's own, and clients of stores where they are loaded on demand: the lack of one is an error that names it. */
function isAllowed({ to, dynamic }: Import): boolean {
  if (to.startsWith("node:")) return true;
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as { peerDependencies?: Record<string, string> };
  return dynamic && manifest.peerDependencies?.[to] !== undefined;
}

function trail(cameFrom: ReadonlyMap<string, string | undefined>, path: string): string {
  const before = cameFrom.get(path);
  return before === undefined ? path : `${trail(cameFrom, before)} > ${path}`;
}

/** Types are left out: they are erased, so a circle of types cannot break loading. */
export function circles(sources: Sources): string[] {
  const faults: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, stack: readonly string[]): void => {
    const at = stack.indexOf(path);
    if (at >= 0) faults.push([...stack.slice(at), path].join(" > "));
    if (at >= 0 || done.has(path)) return;
    for (const next of runtimeTargets(sources, path)) visit(next, [...stack, path]);
    done.add(path);
  };
  for (const path of sources.keys()) visit(path, []);
  return faults;
}

function runtimeTargets(sources: Sources, path: string): string[] {
  const file = sources.get(path);
  const edges: Import[] = file === undefined ? [] : importsOf(file);
  return [...new Set(edges.filter((edge) => edge.relative && !edge.typeOnly && !edge.dynamic).map((edge) => edge.to))];
}
