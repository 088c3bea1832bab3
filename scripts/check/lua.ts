// The Lua files of the Redis driver as a TypeScript module, with what they include.

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = "src/drivers/redis/lua";
/** Where the module stands. */
export const LUA_MODULE = "src/drivers/redis/scripts.ts";
/** What others include, once. */
const COMMON = "line.lua";
const INCLUDE = `--- include ${COMMON}\n`;
/** As the formatter has it. */
const MOST_ON_A_LINE = 112;

/** The module as it should be. */
export function luaModule(): string {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith(".lua") && name !== COMMON);
  const common = whole(COMMON);
  const scripts = names.sort().map((name) => {
    const parts = withoutHead(read(name)).split(INCLUDE).map(withoutComments);
    const [own = "", rest] = parts;
    const sha = createHash("sha1").update(parts.join(common)).digest("hex");
    const terms = rest === undefined ? [own] : [own, null, rest].filter((term) => term !== "");
    const words = terms.map((term) => (term === null ? "LINE" : JSON.stringify(term)));
    const short = ` ${words.join(" + ")}`;
    const text = words.length === 1 || short.length < MOST_ON_A_LINE ? short : `\n    ${words.join(" +\n    ")}`;
    return `export const ${constant(name)}: Script = {\n  sha: "${sha}",\n  text:${text},\n};\n`;
  });
  return [
    "// Made of lua/*.lua by `npm run lua`: change those, not this.\n",
    "/** A script as Redis is given it: by its digest, or whole when Redis does not have it. */",
    "export interface Script {\n  readonly sha: string;\n  readonly text: string;\n}\n",
    `const LINE =\n  ${JSON.stringify(common)};\n`,
    scripts.join("\n"),
  ].join("\n");
}

/** Is the module what the files say? */
export function luaFaults(): string[] {
  const current = existsSync(LUA_MODULE) && readFileSync(LUA_MODULE, "utf8") === luaModule();
  return current ? [] : [`${LUA_MODULE} is not what ${FOLDER} says: npm run lua`];
}

/** A file without comments, with all it includes in its place. */
function whole(name: string): string {
  const parts = withoutHead(read(name)).split(/^--- include (\S+)\n/m);
  return parts.map((part, at) => (at % 2 === 0 ? withoutComments(part) : whole(part))).join("");
}

function read(name: string): string {
  return readFileSync(join(FOLDER, name), "utf8");
}

function constant(name: string): string {
  return name.replace(".lua", "").toUpperCase();
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
