// Lua scripts, SQL statements, shell scripts and C are imported as texts (src/text-modules.d.ts). Three loaders read them with what is
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
/** The text of the other file is not included, only its constants may be used. */
const LUA_REFERENCE = /^[ \t]*--- (?:include|constants) (\S+)\n/gm;
/** As in Lua 5.4, which Redis does not have. The value is a literal, or literals and constants that ".." joins. */
const LUA_CONSTANT = /^local ([A-Z][A-Z\d_]*) <const> = (.+)\n/gm;
/** Texts, which stay as they are, and names. */
const LUA_WORD = /'(?:[^'\\]|\\.)*'|(?<![.\w])[A-Z][A-Z\d_]*\b/g;

export function isTextFile(path: string): boolean {
  return /\.(?:lua|sql|sh|c)$/.test(path);
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
  const constants = readLuaConstants(path);
  const terms = withoutHead(readFileSync(path, "utf8")).split(LUA_INCLUDE);
  return terms.map((term, at) => (at % 2 === 0 ? resolveConstants(withoutLuaComments(term), constants) : term));
}

/** The values, by name, of the constants that a file declares, and of those of the files that it includes or refers to. */
function readLuaConstants(path: string): Map<string, string> {
  const text = withoutHead(readFileSync(path, "utf8"));
  const references = [...text.matchAll(LUA_REFERENCE)].map(([, name]) => join(dirname(path), name as string));
  const constants = new Map(references.flatMap((reference) => [...readLuaConstants(reference)]));
  for (const [, name, value] of withoutLuaComments(text).matchAll(LUA_CONSTANT)) {
    const values = (value as string).split(" .. ").map((term) => (/^[A-Z]/.test(term) ? constants.get(term) : term));
    if (values.includes(undefined)) throw new Error(`${path}: the value of ${name} has a name that is no constant`);
    constants.set(name as string, values.length === 1 ? (values[0] as string) : joinLuaLiterals(values as string[]));
  }
  return constants;
}

function joinLuaLiterals(literals: readonly string[]): string {
  return `'${literals.map((literal) => literal.replace(/^'(.*)'$/, "$1")).join("")}'`;
}

/** Replaces the names of constants by their values, so that they cost nothing when a script runs. */
function resolveConstants(text: string, constants: ReadonlyMap<string, string>): string {
  return text.replace(LUA_CONSTANT, "").replace(LUA_WORD, (word) => constants.get(word) ?? word);
}

function withoutHead(text: string): string {
  return text.replace(/^--\[\[.*?\]\]\n/s, "");
}

/** Nor indentation, an eighth of the scripts, which nothing shows. No text of a script has two hyphens or goes over several lines. */
function withoutLuaComments(text: string): string {
  return text
    .replace(/^\s*--.*\n/gm, "")
    .replace(/[ \t]+--.*$/gm, "")
    .replace(/^[ \t]+/gm, "")
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
