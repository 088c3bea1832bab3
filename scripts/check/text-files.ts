// Files in other languages: the head of a Lua script or an SQL statement, and files that no code imports.

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { isTextFile, listIncludes } from "../text-modules.ts";
import { MAX_FUNCTION_LINES } from "./code-rules.ts";
import type { SourceTree } from "./source-tree.ts";
import { listAllImports } from "./source-tree.ts";

/** How the language begins a comment of several lines. The head says what the file does, takes and costs. */
const OPENINGS: readonly (readonly [ending: string, opening: string])[] = [
  [".lua", "--[["],
  [".sql", "/*"],
];

export function findMissingHeads(paths: readonly string[]): string[] {
  return OPENINGS.flatMap(([ending, opening]) =>
    paths
      .filter((path) => path.endsWith(ending))
      .flatMap((path) => {
        const head = `${opening} ${basename(path)} — `;
        return readFileSync(path, "utf8").startsWith(head)
          ? []
          : [`${path} does not begin with "${head}<what it does>"`];
      }),
  );
}

/** As in TypeScript. The functions of Lua scripts stand at the outermost level. */
export function findLongLuaFunctions(paths: readonly string[]): string[] {
  return paths
    .filter((path) => path.endsWith(".lua"))
    .flatMap((path) =>
      [...readFileSync(path, "utf8").matchAll(/^(?:local )?function (\w+).*?^end$/gms)].flatMap(([text, name]) => {
        const lines = text.split("\n").length;
        return lines > MAX_FUNCTION_LINES
          ? [`${path} function ${name}: ${lines} lines, at most ${MAX_FUNCTION_LINES}`]
          : [];
      }),
    );
}

export function findUnusedTexts(paths: readonly string[], sources: SourceTree): string[] {
  const texts = paths.filter(isTextFile);
  const used = new Set([...listAllImports(sources).map(({ to }) => to), ...texts.flatMap(listIncludes)]);
  return texts.filter((path) => !used.has(path)).map((path) => `${path} is imported nowhere`);
}
