// Rules about the code inside one file: purity of core, inheritance, sizes, what drivers may not do.

import ts from "typescript";
import type { SourceTree } from "./source-tree.ts";
import { formatLocation, listImports, walk } from "./source-tree.ts";

const MAX_FILE_LINES = 600;
const MAX_FUNCTION_LINES = 60;

const TIMERS: readonly string[] = ["setTimeout", "setInterval", "setImmediate"];
/** Pure code gets the time and randomness as arguments, so that a test or another language can repeat every step. */
const IMPURE_GLOBALS: readonly string[] = [...TIMERS, "queueMicrotask", "Date", "performance", "crypto", "process"];

/** These own a connection or several drivers, so they must wait and retry themselves. */
const ALLOWED_TO_WAIT: readonly RegExp[] = [
  /^src\/drivers\/[^/]+\/connection\.ts$/,
  /^src\/drivers\/server\/autostart\.ts$/,
  /^src\/drivers\/redis\/(?:subscriptions|list|diagnostics|clients\/[^/]+)\.ts$/,
  /^src\/drivers\/zookeeper\/client\//,
  /^src\/drivers\/quorum\/(?:member|claims|tokens)\.ts$/,
];

/** They get the time and randomness as arguments. */
const PURE: readonly RegExp[] = [
  /^src\/(?:claim|lock-table)\//,
  /^src\/util\/(?:backoff|deadline-heap|linked-list|slot-map)\.ts$/,
  /^src\/client\/(?:handoff-budget|lock-spec)\.ts$/,
];

export function pureCore(sourceTree: SourceTree): string[] {
  const files = [...sourceTree.values()].filter((file) => PURE.some((pattern) => pattern.test(file.fileName)));
  return files.flatMap((file) => {
    const faults = listImports(file)
      .filter((edge) => !edge.relative)
      .map((edge) => `${edge.from}:${edge.line} pure code may not import ${edge.to}`);
    walk(file, (node) => {
      const name = ts.isIdentifier(node) && isGlobalUse(node) ? node.text : "";
      if (IMPURE_GLOBALS.includes(name)) faults.push(`${formatLocation(node)} pure code may not use ${name}`);
      if (ts.isPropertyAccessExpression(node) && node.getText() === "Math.random") {
        faults.push(`${formatLocation(node)} pure code may not use Math.random: take a random number as an argument`);
      }
    });
    return faults;
  });
}

export function inheritance(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    walk(file, (node) => {
      if (!ts.isHeritageClause(node) || node.token !== ts.SyntaxKind.ExtendsKeyword) return;
      if (!ts.isClassLike(node.parent)) return;
      const base = node.types[0]?.expression.getText() ?? "";
      if (!base.endsWith("Error"))
        faults.push(`${formatLocation(node)} extends ${base}: only errors have a base class`);
    });
  }
  return faults;
}

export function fileAndFunctionSizes(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    const lines = file.text.trimEnd().split("\n").length;
    if (lines > MAX_FILE_LINES) faults.push(`${file.fileName}: ${lines} lines, at most ${MAX_FILE_LINES}`);
    walk(file, (node) => {
      if (!isFunction(node)) return;
      const own = countOwnLines(node);
      if (own > MAX_FUNCTION_LINES) {
        faults.push(
          `${formatLocation(node)} function ${functionName(node)}: ${own} lines, at most ${MAX_FUNCTION_LINES}`,
        );
      }
    });
  }
  return faults;
}

/** A driver answers calls. Time and retries belong to the engine that calls it, so that they exist once. */
export function driversWithoutTimers(sourceTree: SourceTree): string[] {
  const files = filesInFolder(sourceTree, "src/drivers/").filter(
    (file) => !ALLOWED_TO_WAIT.some((it) => it.test(file.fileName)),
  );
  return files.flatMap((file) => {
    const faults = listImports(file)
      .filter((edge) => /^node:timers/.test(edge.to))
      .map((edge) => `${edge.from}:${edge.line} a driver has no timers`);
    walk(file, (node) => {
      if (ts.isIdentifier(node) && TIMERS.includes(node.text) && isGlobalUse(node)) {
        faults.push(`${formatLocation(node)} a driver has no timers (${node.text})`);
      }
      if (ts.isIterationStatement(node, false) && containsAwait(node)) {
        faults.push(`${formatLocation(node)} a driver has no loop that awaits`);
      }
    });
    return faults;
  });
}

function filesInFolder(sourceTree: SourceTree, folder: string): ts.SourceFile[] {
  return [...sourceTree.values()].filter((file) => file.fileName.startsWith(folder));
}

/** `Date` and `globalThis.Date`, but not `event.Date` or `{ Date: 1 }`. */
function isGlobalUse(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent) && parent.name === node) {
    return parent.expression.getText() === "globalThis";
  }
  const declares =
    ts.isPropertyAssignment(parent) || ts.isPropertySignature(parent) || ts.isPropertyDeclaration(parent);
  return !(declares && parent.name === node);
}

function containsAwait(loop: ts.Node): boolean {
  if (ts.isForOfStatement(loop) && loop.awaitModifier !== undefined) return true;
  const search = (node: ts.Node): boolean =>
    ts.isAwaitExpression(node) || (!isFunction(node) && (ts.forEachChild(node, search) ?? false));
  return ts.forEachChild(loop, search) ?? false;
}

type FunctionNode = ts.FunctionLikeDeclaration | ts.ClassStaticBlockDeclaration;

function isFunction(node: ts.Node): node is FunctionNode {
  if (ts.isClassStaticBlockDeclaration(node)) return true;
  return ts.isFunctionLike(node) && "body" in node && node.body !== undefined;
}

/** Lines from the first to the last, without those of functions inside it (which are counted on their own). */
function countOwnLines(node: FunctionNode): number {
  let lines = lineSpan(node) + 1;
  const subtract = (child: ts.Node): void => {
    if (isFunction(child)) lines -= lineSpan(child);
    else ts.forEachChild(child, subtract);
  };
  ts.forEachChild(node, subtract);
  return lines;
}

function lineSpan(node: ts.Node): number {
  const file = node.getSourceFile();
  const lineAt = (position: number): number => file.getLineAndCharacterOfPosition(position).line;
  return lineAt(node.getEnd()) - lineAt(node.getStart(file));
}

function functionName(node: FunctionNode): string {
  if ("name" in node && node.name !== undefined) return node.name.getText();
  return ts.isVariableDeclaration(node.parent) ? node.parent.name.getText() : "(unnamed)";
}
