// The Lua scripts of Redis are put together from texts in one scope. The head of each text in lib/ lists the files whose names it needs,
// and the names that it defines for others; so a reader knows where a name comes from, and a name that nothing defines is found here.

import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { listIncludes } from "../text-modules.ts";

const KEYWORDS =
  "and break do else elseif end false for function if in local nil not or repeat return then true until while";
const GLOBALS = "ARGV cjson ipairs math pairs pcall redis select string struct table tonumber type unpack";
const BUILT_IN: ReadonlySet<string> = new Set(`${KEYWORDS} ${GLOBALS}`.split(" "));

const OUTERMOST = /^(?:local function|local|function) (\w+(?:, \w+)*)/gm;
const LOCAL = /\b(?:local function|local|for) (\w+(?:, \w+)*)/g;
const PARAMETERS = /\bfunction(?: \w+)?\(([^)]*)\)/g;
const TABLE_KEY = /([{,]\s*)\w+ = /g;
/** Not a field. */
const WORD = /(?<![.\w])([A-Za-z_]\w*)/g;

interface LuaText {
  readonly path: string;
  readonly name: string;
  /** The paths of what it includes. */
  readonly includes: readonly string[];
  /** The paths of those whose constants it refers to: the build replaces these (text-modules.ts). */
  readonly constantFiles: readonly string[];
  readonly constants: ReadonlySet<string>;
  /** Declared at the outermost level: what follows in the script sees them. */
  readonly declared: ReadonlySet<string>;
  /** Used, and declared nowhere in the text. */
  readonly free: ReadonlySet<string>;
  /** null: its head has no list. */
  readonly needs: readonly string[] | null;
  readonly defines: readonly string[] | null;
}

export function findUnlistedNames(paths: readonly string[]): string[] {
  const texts = paths.filter((path) => path.endsWith(".lua")).map(readLuaText);
  const included = new Set(texts.flatMap(({ includes }) => includes));
  return texts.flatMap((text) => [
    ...findUndefined(text, texts),
    ...(included.has(text.path) ? findListFaults(text, texts) : []),
  ]);
}

function findUndefined(text: LuaText, texts: readonly LuaText[]): string[] {
  return [...text.free]
    .filter((name) => !isConstant(name, text, texts) && listProviders(name, text, texts).length === 0)
    .map((name) => `${text.name} uses ${name}, which nothing defines`);
}

function findListFaults(text: LuaText, texts: readonly LuaText[]): string[] {
  const providers = [...text.free]
    .filter((name) => !isConstant(name, text, texts))
    .flatMap((name) => listProviders(name, text, texts))
    .filter((provider) => !includesText(text, provider, texts))
    .map(({ name }) => name);
  const usedElsewhere = [...text.declared].filter((name) =>
    texts.some((other) => other !== text && other.free.has(name)),
  );
  return [
    ...compareLists(`${text.name} needs`, text.needs, providers),
    ...compareLists(`${text.name} defines`, text.defines, usedElsewhere),
  ];
}

function compareLists(what: string, listed: readonly string[] | null, found: readonly string[]): string[] {
  const [expected, actual] = [new Set(found), new Set(listed)];
  return [
    ...[...expected].filter((name) => !actual.has(name)).map((name) => `${what} ${name}: its head does not say so`),
    ...[...actual].filter((name) => !expected.has(name)).map((name) => `${what} ${name}, says its head: it does not`),
  ];
}

/** The texts of lib/ that declare a name, and what includes this text. */
function listProviders(name: string, text: LuaText, texts: readonly LuaText[]): LuaText[] {
  return texts.filter(
    (other) => other.declared.has(name) && (other.needs !== null || includesText(other, text, texts)),
  );
}

function includesText(outer: LuaText, inner: LuaText, texts: readonly LuaText[]): boolean {
  const included = texts.filter(({ path }) => outer.includes.includes(path));
  return included.some((text) => text === inner || includesText(text, inner, texts));
}

function isConstant(name: string, text: LuaText, texts: readonly LuaText[]): boolean {
  if (text.constants.has(name)) return true;
  const files = [...text.constantFiles, ...text.includes];
  return texts.some((other) => files.includes(other.path) && isConstant(name, other, texts));
}

function readLuaText(path: string): LuaText {
  const source = readFileSync(path, "utf8");
  const head = /^--\[\[.*?\]\]\n/s.exec(source)?.[0] ?? "";
  const body = source.slice(head.length);
  const code = body.replace(/--.*$| <const>/gm, "").replace(/'(?:[^'\\\n]|\\.)*'/g, "''");
  const constants = new Set(findNames(body, /^local ([A-Z][A-Z\d_]*) <const>/gm));
  const declared = findNames(code, OUTERMOST).filter((name) => !constants.has(name));
  const known = new Set([...BUILT_IN, ...findNames(code, LOCAL), ...findNames(code, PARAMETERS)]);
  return {
    path,
    name: basename(path),
    includes: listIncludes(path),
    constantFiles: findNames(body, /^--- constants (\S+)$/gm).map((name) => join(dirname(path), name)),
    constants,
    declared: new Set(declared),
    free: new Set(findNames(code.replace(TABLE_KEY, "$1"), WORD).filter((name) => !known.has(name))),
    needs: readList(head, "needs"),
    defines: readList(head, "defines"),
  };
}

/** What the group of the pattern has: one name, or several between commas. */
function findNames(code: string, pattern: RegExp): string[] {
  return [...code.matchAll(pattern)].flatMap(([, names]) => split(names as string));
}

/** A list in a head ends with its paragraph or with the next list. */
function readList(head: string, title: string): readonly string[] | null {
  const text = new RegExp(`^     ${title} +(.*?)(?=\\n\\n|\\n     defines| \\]\\])`, "ms").exec(head)?.[1];
  return text === undefined ? null : split(text).filter((name) => name !== "nothing");
}

function split(names: string): string[] {
  return names.split(/[,\s]+/).filter((name) => name !== "");
}
