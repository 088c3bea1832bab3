// docs/reference says something of everything the package exports, and of nothing else.

import { resolve } from "node:path";
import ts from "typescript";
import type { Page } from "./markdown.ts";
import { parsePage, readPages } from "./markdown.ts";
import { readPackageEntries } from "./package-entries.ts";
import { compilerOptions } from "./snippets.ts";

/** An exported name, and the names of what belongs to it. */
export type ExportedName = { readonly entry: string; readonly name: string; readonly members: readonly string[] };

const REFERENCE = "docs/reference/";

export function findUndocumented(): string[] {
  const pages = readPages("docs/reference").filter(({ path }) => path.startsWith(REFERENCE));
  return findApiFaults(listExports(), pages);
}

/** Every export has a heading with its name between backticks, and each of its members is named below that heading. */
export function findApiFaults(exported: readonly ExportedName[], pages: readonly Page[]): string[] {
  const sections = pages.flatMap(parseSections);
  const faults = exported.flatMap(({ entry, name, members }) => {
    const own = sections.filter(({ names }) => names.includes(name));
    if (own.length === 0) return [`"${name}" of ${entry} has no heading in ${REFERENCE}`];
    const text = own.map((section) => section.text).join("\n");
    return members
      .filter((member) => !new RegExp(`\\b${member}\\b`).test(text))
      .map((member) => `${own[0]?.place} says nothing of ${name}.${member}`);
  });
  const known = new Set(exported.map(({ name }) => name));
  const strangers = sections.flatMap(({ names, place }) =>
    names.filter((name) => !known.has(name)).map((name) => `${place} is about ${name}, which nothing exports`),
  );
  return [...faults, ...strangers];
}

type PageSection = { readonly place: string; readonly names: readonly string[]; readonly text: string };

/** What stands below headings that name something between backticks; code blocks count, too. */
function parseSections(page: Page): PageSection[] {
  const { prose } = parsePage(page);
  const lines = page.text.split("\n");
  const heads = prose.flatMap((line, index) => (/^#{2,6} /.test(line) ? [index] : []));
  return heads.flatMap((head, at) => {
    const names = [...(prose[head] ?? "").matchAll(/`([A-Za-z_]\w*)(?:\([^`]*\))?`/g)].map((match) => match[1] ?? "");
    const text = lines.slice(head + 1, heads[at + 1]).join("\n");
    return names.length === 0 ? [] : [{ place: `${page.path}:${head + 1}`, names, text }];
  });
}

function listExports(): ExportedName[] {
  const entries = readPackageEntries().filter(({ name }) => !name.startsWith("bin "));
  const files = entries.map(({ name, targets }) => {
    const types = targets.find((target) => target.endsWith(".d.ts")) ?? "";
    return { entry: name === "." ? "holdfast" : `holdfast${name.slice(1)}`, path: resolve(types) };
  });
  const program = ts.createProgram(
    files.map(({ path }) => path),
    compilerOptions(),
  );
  const checker = program.getTypeChecker();
  return files.flatMap(({ entry, path }) => {
    const source = program.getSourceFile(path);
    const symbol = source === undefined ? undefined : checker.getSymbolAtLocation(source);
    if (symbol === undefined) return [];
    return checker.getExportsOfModule(symbol).map((one) => {
      const real = (one.flags & ts.SymbolFlags.Alias) === 0 ? one : checker.getAliasedSymbol(one);
      return { entry, name: one.name, members: (real.declarations ?? []).flatMap(listMembers) };
    });
  });
}

/** Names of the properties and methods it declares itself. */
function listMembers(declaration: ts.Declaration): string[] {
  const names = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isConstructorDeclaration(node) || ts.isParameter(node)) return;
    const named = ts.isTypeElement(node) || ts.isClassElement(node) ? node.name : undefined;
    if (named !== undefined && ts.isIdentifier(named)) names.add(named.text);
    else ts.forEachChild(node, visit);
  };
  const isType = ts.isInterfaceDeclaration(declaration) || ts.isTypeAliasDeclaration(declaration);
  if (isType || ts.isClassDeclaration(declaration)) ts.forEachChild(declaration, visit);
  return [...names];
}
