// The files of src, parsed once for all of our own checks. No type checker: syntax is enough for them.

import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import ts from "typescript";

/** Parsed files by path, such as "src/core/line.ts". */
export type Sources = ReadonlyMap<string, ts.SourceFile>;

export type Import = {
  readonly from: string;
  /** The path of the imported file within the tree, or the bare name of a package or builtin. */
  readonly to: string;
  readonly relative: boolean;
  /** Erased by the compiler: `import type`, `export type`, `import("x").T`. */
  readonly typeOnly: boolean;
  readonly dynamic: boolean;
  readonly line: number;
};

export function readSources(folder: string): Sources {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(folder, name).replaceAll("\\", "/"))
    .sort();
  return new Map(paths.map((path) => [path, parse(path, readFileSync(path, "utf8"))]));
}

export function parse(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
}

function lineOf(node: ts.Node): number {
  const file = node.getSourceFile();
  return file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1;
}

/** "src/core/line.ts:12": the way editors and terminals open a place. */
export function place(node: ts.Node): string {
  return `${node.getSourceFile().fileName}:${lineOf(node)}`;
}

export function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => walk(child, visit));
}

export function importsOf(file: ts.SourceFile): Import[] {
  const found: Import[] = [];
  const add = (node: ts.Node, specifier: ts.Node | undefined, typeOnly: boolean, dynamic: boolean): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const relative = specifier.text.startsWith(".");
    const to = relative ? posix.join(posix.dirname(file.fileName), specifier.text) : specifier.text;
    found.push({ from: file.fileName, to, relative, typeOnly, dynamic, line: lineOf(node) });
  };
  walk(file, (node) => {
    if (ts.isImportDeclaration(node)) {
      add(node, node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword, false);
    } else if (ts.isExportDeclaration(node)) {
      add(node, node.moduleSpecifier, node.isTypeOnly, false);
    } else if (ts.isImportTypeNode(node)) {
      add(node, ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true, false);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      add(node, node.arguments[0], false, true);
    }
  });
  return found;
}

export function allImports(sources: Sources): Import[] {
  return [...sources.values()].flatMap(importsOf);
}
