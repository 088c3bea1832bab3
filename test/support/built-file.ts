/** What tests start from dist and build must be as new as its sources: a test of an old program proves nothing. */

import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { listFiles } from "../../scripts/list-files.ts";
import { isTextFile } from "../../scripts/text-modules.ts";

interface Source {
  readonly path: string;
  readonly modifiedAt: number;
}

/** The newest source by folder: read once per process. */
const newestSources = new Map<string, Source>();

/** The absolute path of a file below dist or build, such as "dist/cli/main.js". @throws Error if it is missing or older than its sources */
export function builtFile(path: string): string {
  const [output = "", folder = ""] = path.split("/");
  const command = output === "dist" ? "npm run build" : "npm run compile";
  if (!existsSync(path)) throw new Error(`${path} is missing: run ${command}`);
  const builtAt = statSync(path).mtimeMs;
  for (const source of output === "dist" ? ["src"] : new Set(["src", folder])) {
    const newest = findNewestSource(source);
    if (newest.modifiedAt > builtAt) throw new Error(`${output} is older than ${newest.path}: run ${command}`);
  }
  return resolve(path);
}

function findNewestSource(folder: string): Source {
  const knownNewest = newestSources.get(folder);
  if (knownNewest !== undefined) return knownNewest;
  // no program contains a test
  const paths = listFiles(folder).filter((path) => /(?<!\.test)\.ts$|\.1$/.test(path) || isTextFile(path));
  const sources = paths.map((path) => ({ path, modifiedAt: statSync(path).mtimeMs }));
  const newest = sources.reduce((latest, source) => (source.modifiedAt > latest.modifiedAt ? source : latest));
  newestSources.set(folder, newest);
  return newest;
}
