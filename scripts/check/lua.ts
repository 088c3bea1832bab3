// The Lua files of the Redis driver as a TypeScript module, with what they include.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { TextModule } from "./text-modules.ts";
import { findMissingHead, toConstantName } from "./text-modules.ts";

const LUA_DIRECTORY = "src/drivers/redis/lua";
const LUA_MODULE = "src/drivers/redis/scripts.ts";
const INCLUDE = /^[ \t]*--- include (\S+)\n/m;
/** As the formatter has it. */
const MAX_LINE_LENGTH = 112;

/** A file's text, and the expression that stands for it: each file that is included stands in the module once. */
interface LuaPart {
  readonly text: string;
  readonly expression: string;
}

/** The module as it should be. */
export function renderLuaModule(): TextModule {
  return { path: LUA_MODULE, source: LUA_DIRECTORY, text: renderModuleText() };
}

function renderModuleText(): string {
  const names = readdirSync(LUA_DIRECTORY).filter((name) => name.endsWith(".lua"));
  const parts = new Map<string, LuaPart>();
  const scripts = names.sort().map((name) => renderScript(name, resolvePart(name, parts)));
  const shared = [...parts].map(([name, { expression }]) => `const ${toConstantName(name)} =${expression};\n`);
  return [
    "// Made of lua/*.lua by `npm run statements`: change those, not this.\n",
    "/** A script as Redis is given it: by its digest, or whole when Redis does not have it. */",
    "export interface Script {\n  readonly sha: string;\n  readonly text: string;\n}\n",
    shared.join("\n"),
    scripts.join("\n"),
  ].join("\n");
}

function renderScript(name: string, { text, expression }: LuaPart): string {
  const sha = createHash("sha1").update(text).digest("hex");
  // the formatter breaks before a sum, not before a single text
  const words = expression.includes(" +\n") ? expression.replaceAll("\n", "\n  ") : ` ${expression.trim()}`;
  return `export const ${toConstantName(name)}: Script = {\n  sha: "${sha}",\n  text:${words},\n};\n`;
}

/** A file without comments; what it includes is added to the parts, before what includes it. */
function resolvePart(name: string, parts: Map<string, LuaPart>): LuaPart {
  const terms = withoutHead(readLua(name))
    .split(INCLUDE)
    .map((term, at) => {
      if (at % 2 === 0) return { text: withoutComments(term), word: JSON.stringify(withoutComments(term)) };
      const part = parts.get(term) ?? resolvePart(term, parts);
      parts.set(term, part);
      return { text: part.text, word: toConstantName(term) };
    })
    .filter(({ text }) => text !== "");
  const words = terms.map(({ word }) => word);
  const short = ` ${words.join(" + ")}`;
  const isShort = terms.length > 1 && short.length < MAX_LINE_LENGTH;
  return { text: terms.map(({ text }) => text).join(""), expression: isShort ? short : `\n  ${words.join(" +\n  ")}` };
}

/** Files without a head. */
export function findLuaFaults(): string[] {
  const names = readdirSync(LUA_DIRECTORY, { recursive: true, encoding: "utf8" });
  return names
    .filter((name) => name.endsWith(".lua"))
    .flatMap((name) => findMissingHead(join(LUA_DIRECTORY, name), readLua(name), "--[["));
}

function readLua(name: string): string {
  return readFileSync(join(LUA_DIRECTORY, name), "utf8");
}

function withoutHead(text: string): string {
  return text.replace(/^--\[\[.*?\]\]\n/s, "");
}

/** Comments are for readers of the files; every server would keep them. No text of ours has two hyphens. */
function withoutComments(text: string): string {
  return withoutHead(text)
    .replace(/^\s*--.*\n/gm, "")
    .replace(/[ \t]+--.*$/gm, "")
    .replace(/\n{2,}/g, "\n")
    .replace(/^\n/, "");
}
