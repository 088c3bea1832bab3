// The Lua files of the Redis driver as a TypeScript module, with what they include.

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = "src/drivers/redis/lua";
/** Where the module stands. */
export const LUA_MODULE = "src/drivers/redis/scripts.ts";
/** A part, not a script: what all that change lines include. */
const COMMON = "line.lua";
const INCLUDE = /^[ \t]*--- include (\S+)\n/m;
/** As the formatter has it. */
const MOST_ON_A_LINE = 112;

/** The module as it should be. */
export function luaModule(): string {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith(".lua") && name !== COMMON);
  /** By name: what scripts include, each of these once. */
  const parts = new Map<string, string>();
  const scripts = names.sort().map((name) => scriptOf(name, parts));
  const shared = [...parts].map(([name, text]) => `const ${constant(name)} =\n  ${JSON.stringify(text)};\n`);
  return [
    "// Made of lua/*.lua by `npm run lua`: change those, not this.\n",
    "/** A script as Redis is given it: by its digest, or whole when Redis does not have it. */",
    "export interface Script {\n  readonly sha: string;\n  readonly text: string;\n}\n",
    shared.join("\n"),
    scripts.join("\n"),
  ].join("\n");
}

function scriptOf(name: string, parts: Map<string, string>): string {
  const terms = withoutHead(read(name))
    .split(INCLUDE)
    .map((term, at) => {
      const text = at % 2 === 0 ? withoutComments(term) : whole(term);
      if (at % 2 === 1) parts.set(term, text);
      return { text, word: at % 2 === 0 ? JSON.stringify(text) : constant(term) };
    })
    .filter(({ text }) => text !== "");
  const sha = createHash("sha1")
    .update(terms.map(({ text }) => text).join(""))
    .digest("hex");
  const words = terms.map(({ word }) => word);
  const short = ` ${words.join(" + ")}`;
  const text = words.length === 1 || short.length < MOST_ON_A_LINE ? short : `\n    ${words.join(" +\n    ")}`;
  return `export const ${constant(name)}: Script = {\n  sha: "${sha}",\n  text:${text},\n};\n`;
}

/** Is the module what the files say? */
export function luaFaults(): string[] {
  const current = existsSync(LUA_MODULE) && readFileSync(LUA_MODULE, "utf8") === luaModule();
  return current ? [] : [`${LUA_MODULE} is not what ${FOLDER} says: npm run lua`];
}

/** A file without comments, with all it includes in its place. */
function whole(name: string): string {
  const parts = withoutHead(read(name)).split(INCLUDE);
  return parts.map((part, at) => (at % 2 === 0 ? withoutComments(part) : whole(part))).join("");
}

function read(name: string): string {
  return readFileSync(join(FOLDER, name), "utf8");
}

function constant(name: string): string {
  return name.replace(".lua", "").replace("/", "_").toUpperCase();
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
