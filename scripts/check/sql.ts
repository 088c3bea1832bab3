// The SQL files of each dialect as a TypeScript module.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { TextModule } from "./text-modules.ts";
import { findMissingHead, LINE_WIDTH, toConstantName } from "./text-modules.ts";

const DIALECTS = "src/drivers/sql";
/** A line that ends one statement of a file and begins the next: the constant is then a list. */
const NEXT_STATEMENT = /^--- next\n/m;
/**
 * Literals and quoted names, which stay as they are, and comments. A body between dollars is code, as what surrounds it. A
 * comment that begins with an exclamation mark, for MariaDB alone with an M before it, or a plus is an instruction to the server.
 */
const TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[ \t]*--[^\n]*|[ \t]*\/\*(?!M?!|\+).*?\*\//gs;

export interface SqlFile {
  readonly path: string;
  /** Below its dialect's folder of statements: "claim.sql". */
  readonly name: string;
  readonly text: string;
}

/** The modules of all dialects as they should be. */
export function renderSqlModules(): TextModule[] {
  return listDialects().map((dialect) => ({
    path: join(DIALECTS, dialect, "statements.ts"),
    source: join(DIALECTS, dialect, "sql"),
    text: renderSqlModule(readSqlFiles(dialect)),
  }));
}

export function renderSqlModule(files: readonly SqlFile[]): string {
  const constants = files.map(({ name, text }) => renderConstant(toConstantName(name), toStatements(text)));
  return ["// Made of sql/*.sql by `npm run statements`: change those, not this.\n", ...constants].join("\n");
}

/** What is wrong with the files themselves. */
export function findSqlFaults(files: readonly SqlFile[] = listDialects().flatMap(readSqlFiles)): string[] {
  return files.flatMap(({ path, text }) => {
    const long = (text.match(TOKEN) ?? []).find((token) => /^['"`]/.test(token) && token.includes("\n"));
    return [
      ...findMissingHead(path, text, "/*"),
      // the lines of a text are trimmed
      ...(long === undefined ? [] : [`${path}: a literal or name goes over several lines: ${JSON.stringify(long)}`]),
    ];
  });
}

/** The statements of a file without comments: every server would keep them. Indentation stays, for those who read them there. */
function toStatements(text: string): readonly string[] {
  return text.split(NEXT_STATEMENT).map((statement) =>
    statement
      .replace(TOKEN, (token) => (/^['"`]/.test(token) ? token : ""))
      .replaceAll(/[ \t]+$/gm, "")
      .replaceAll(/\n{2,}/g, "\n")
      .trim(),
  );
}

function renderConstant(name: string, statements: readonly string[]): string {
  const [first = "", ...more] = statements.map(toLiteral);
  if (more.length > 0) {
    const lines = [first, ...more].map((literal) => `  ${literal},\n`).join("");
    const short = `export const ${name}: readonly string[] = [${[first, ...more].join(", ")}];\n`;
    return short.length <= LINE_WIDTH + 1 ? short : `export const ${name}: readonly string[] = [\n${lines}];\n`;
  }
  const short = `export const ${name}: string = ${first};\n`;
  return short.length <= LINE_WIDTH + 1 ? short : `export const ${name}: string =\n  ${first};\n`;
}

/** With the quotes that the formatter prefers: those with fewer escapes. */
function toLiteral(text: string): string {
  const double = JSON.stringify(text);
  const count = (quote: string): number => text.split(quote).length;
  if (count('"') <= count("'")) return double;
  return `'${double.slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}

function listDialects(): string[] {
  return readdirSync(DIALECTS).filter((name) => existsSync(join(DIALECTS, name, "sql")));
}

function readSqlFiles(dialect: string): SqlFile[] {
  const folder = join(DIALECTS, dialect, "sql");
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".sql"));
  return names.sort().map((name) => {
    const path = join(folder, name);
    return { path, name: name.replaceAll("\\", "/"), text: readFileSync(path, "utf8") };
  });
}
