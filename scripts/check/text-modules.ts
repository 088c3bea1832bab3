// Files in another language that stand in the sources as modules of texts: Lua scripts and SQL statements. Nothing is read
// from disk at run time, and every tool that reads TypeScript can read them.

import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";

/** As the formatter has it (biome.jsonc). */
export const LINE_WIDTH = 120;

export interface TextModule {
  readonly path: string;
  /** Where its texts come from: for messages. */
  readonly source: string;
  readonly text: string;
}

export function findStaleModules(modules: readonly TextModule[]): string[] {
  return modules
    .filter(({ path, text }) => !existsSync(path) || readFileSync(path, "utf8") !== text)
    .map(({ path, source }) => `${path} is not what ${source} says: npm run statements`);
}

/** `opening`: how the language begins a comment of several lines. The head tells what the file does, takes and costs. */
export function findMissingHead(path: string, text: string, opening: string): string[] {
  const head = `${opening} ${basename(path)} — `;
  return text.startsWith(head) ? [] : [`${path} does not begin with a head: "${head}<what it does>"`];
}

export function toConstantName(name: string): string {
  return name
    .replace(/\.\w+$/, "")
    .replaceAll(/[/-]/g, "_")
    .toUpperCase();
}
