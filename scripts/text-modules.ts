// Lua scripts, SQL statements and shell scripts are imported as texts (src/text-modules.d.ts). Three loaders read them with what is
// here: rolldown for dist, Vitest, and `npm run compile`, which writes modules for Node into build (docs/decisions/0081 says why).

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";

/**
 * Literals and quoted names, which stay as they are, and comments. A body between dollars is code, as what surrounds it. A
 * comment that begins with an exclamation mark, for MariaDB alone with an M before it, or a plus is an instruction to the server.
 */
const SQL_TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[ \t]*--[^\n]*|[ \t]*\/\*(?!M?!|\+).*?\*\//gs;
const LUA_INCLUDE = /^[ \t]*--- include (\S+)\n/m;

export function isTextFile(path: string): boolean {
  return /\.(?:lua|sql|sh)$/.test(path);
}

/** A plugin of rolldown and of Vitest. */
export const textModules = {
  name: "texts",
  load: (path: string): string | null => (isTextFile(path) ? renderTextModule(path) : null),
};

/** What the server or the shell is given: a file with what it includes. Of Lua and SQL without comments: every server would keep them. */
export function readText(path: string): string {
  if (path.endsWith(".lua")) {
    const terms = readLuaTerms(path);
    return terms.map((term, at) => (at % 2 === 0 ? term : readText(join(dirname(path), term)))).join("");
  }
  const text = readFileSync(path, "utf8");
  return path.endsWith(".sql") ? withoutSqlComments(path, text) : text;
}

/**
 * The ES module of a file. A Lua script imports the text of what it includes, so that a bundle contains it once, and has its digest,
 * so that no process computes it. Bundles keep the names of the constants.
 */
export function renderTextModule(path: string): string {
  const name = basename(path, extname(path)).replaceAll("-", "_").toUpperCase();
  if (!path.endsWith(".lua")) {
    return `const ${name} = ${JSON.stringify(readText(path))};\nexport { ${name} as default };\n`;
  }
  const terms = readLuaTerms(path);
  const imports = terms.map((term, at) => (at % 2 === 0 ? "" : `import { text as include${at} } from "./${term}";\n`));
  const sum = terms
    .map((term, at) => (at % 2 === 0 ? JSON.stringify(term) : `include${at}`))
    .filter((word) => word !== '""');
  const sha = createHash("sha1").update(readText(path)).digest("hex");
  return `${imports.join("")}const ${name}_TEXT = ${sum.join(" + ")};
const ${name} = { sha: "${sha}", text: ${name}_TEXT };
export { ${name} as default, ${name}_TEXT as text };
`;
}

/** The paths of what a file includes. */
export function listIncludes(path: string): string[] {
  if (!path.endsWith(".lua")) return [];
  return readLuaTerms(path).flatMap((term, at) => (at % 2 === 0 ? [] : [join(dirname(path), term)]));
}

/** By turns a text, which may be empty, and the path of what is included after it. */
function readLuaTerms(path: string): string[] {
  const terms = withoutHead(readFileSync(path, "utf8")).split(LUA_INCLUDE);
  return terms.map((term, at) => (at % 2 === 0 ? withoutLuaComments(term) : term));
}

function withoutHead(text: string): string {
  return text.replace(/^--\[\[.*?\]\]\n/s, "");
}

/** No text of a script has two hyphens. */
function withoutLuaComments(text: string): string {
  return text
    .replace(/^\s*--.*\n/gm, "")
    .replace(/[ \t]+--.*$/gm, "")
    .replace(/\n{2,}/g, "\n")
    .replace(/^\n/, "");
}

/** Indentation stays, for those who read the functions in a database. */
function withoutSqlComments(path: string, text: string): string {
  return text
    .replace(SQL_TOKEN, (token) => {
      if (!/^['"`]/.test(token)) return "";
      // the lines of a text are trimmed
      if (token.includes("\n"))
        throw new Error(`${path}: a literal or name goes over several lines: ${JSON.stringify(token)}`);
      return token;
    })
    .replaceAll(/[ \t]+$/gm, "")
    .replaceAll(/\n{2,}/g, "\n")
    .trim();
}
