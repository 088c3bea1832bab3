// The files of src, parsed once for all of our own checks. No type checker: syntax is enough for them.

import { readFileSync } from "node:fs";
import { posix } from "node:path";
import ts from "typescript";
import { listFiles } from "../list-files.ts";

/** Parsed files by path, such as "src/lock-table/admission.ts". */
export type SourceTree = ReadonlyMap<string, ts.SourceFile>;

export type ImportEdge = {
  readonly from: string;
  /** The path of the imported file within the tree, or the bare name of a package or builtin. */
  readonly to: string;
  readonly relative: boolean;
  /** Erased by the compiler: `import type`, `export type`, `import("x").T`. */
  readonly typeOnly: boolean;
  readonly dynamic: boolean;
  readonly line: number;
};

export function readSourceTree(folder: string): SourceTree {
  const paths = listFiles(folder)
    .filter((path) => /\.tsx?$/.test(path))
    .sort();
  return new Map(paths.map((path) => [path, parseSource(path, readFileSync(path, "utf8"))]));
}

export function parseSource(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
}

function lineOf(node: ts.Node): number {
  const file = node.getSourceFile();
  return file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1;
}

/** "src/lock-table/admission.ts:12": the way editors and terminals open a place. */
export function formatLocation(node: ts.Node): string {
  return `${node.getSourceFile().fileName}:${lineOf(node)}`;
}

export function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => walk(child, visit));
}

/** `target`: a file, or a folder when it ends with a slash. */
export function isWithin(path: string, target: string): boolean {
  return target.endsWith("/") ? path.startsWith(target) : path === target;
}

/** A row of a table that fits no file is left over from a file that moved or went; it would hide the next fault. */
export function findDeadTargets(paths: Iterable<string>, targets: readonly string[], table: string): string[] {
  const all = [...paths];
  return [...new Set(targets)]
    .filter((target) => !all.some((path) => isWithin(path, target)))
    .map((target) => `${table} names ${target}, which does not exist`);
}

export function listImports(file: ts.SourceFile): ImportEdge[] {
  const imports: ImportEdge[] = [];
  const add = (node: ts.Node, specifier: ts.Node | undefined, typeOnly: boolean, dynamic: boolean): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const relative = specifier.text.startsWith(".");
    const to = relative ? posix.join(posix.dirname(file.fileName), specifier.text) : specifier.text;
    imports.push({ from: file.fileName, to, relative, typeOnly, dynamic, line: lineOf(node) });
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
  return imports;
}

export function listAllImports(sourceTree: SourceTree): ImportEdge[] {
  return [...sourceTree.values()].flatMap(listImports);
}
